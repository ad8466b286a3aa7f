#include "trainer/device/device.h"

namespace {

void need(tutti_status status, const std::string& what) {
    if (status == TUTTI_OK) return;
    throw tutti::training::Failure(
        status, fmt::format("the device could not {}: {}", what, tutti_status_string(status)));
}

}  // namespace

void* tutti_device::alloc(std::size_t bytes) {
    void* data = nullptr;
    need(functions_.alloc(user_, bytes, &data), fmt::format("allocate {} bytes", bytes));
    return data;
}

void tutti_device::copy(void* to, const void* from, std::size_t bytes) {
    if (bytes && to != from)
        need(functions_.copy(user_, to, from, bytes), fmt::format("copy {} bytes", bytes));
}

void tutti_device::zero(void* data, std::size_t bytes) {
    if (bytes) need(functions_.zero(user_, data, bytes), fmt::format("zero {} bytes", bytes));
}

void tutti_device::axpby(std::size_t count, tutti_dtype dtype, double a, const void* x, double b,
                         void* y) {
    if (!count) return;
    const char* name = tutti_dtype_name(dtype);
    need(functions_.axpby(user_, count, dtype, a, x, b, y),
         fmt::format("add {} elements of {}", count, name ? name : "no dtype"));
}

void tutti_device::run(void (*work)(void*), void* argument) {
    need(functions_.run(user_, work, argument), "run an operation");
}

void tutti_device::protect(void* data, std::size_t bytes, tutti_access access) {
    need(functions_.protect(user_, data, bytes, access), fmt::format("protect {} bytes", bytes));
}
