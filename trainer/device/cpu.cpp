// The built-in device: this host's memory; operations run on the calling thread.
#include <sys/mman.h>

#include <cstring>

#include "trainer/device/device.h"

namespace tutti::trainer {
namespace {

tutti_status alloc(void*, size_t bytes, void** data) {
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return TUTTI_ERR_NO_MEMORY;
    *data = at;
    return TUTTI_OK;
}

void release(void*, void* data, size_t bytes) {
    ::munmap(data, bytes);
}

tutti_status copy(void*, void* to, const void* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    return TUTTI_OK;
}

tutti_status zero(void*, void* data, size_t bytes) {
    std::memset(data, 0, bytes);
    return TUTTI_OK;
}

template <typename T>
void combine(size_t count, double a, const void* from, double b, void* to) {
    const auto* x = static_cast<const T*>(from);
    auto* y = static_cast<T*>(to);
    const T p = static_cast<T>(a), q = static_cast<T>(b);
    if (q == 0) {
        for (size_t i = 0; i < count; ++i) y[i] = p * x[i];
    } else if (p == 1 && q == 1) {
        for (size_t i = 0; i < count; ++i) y[i] += x[i];
    } else {
        for (size_t i = 0; i < count; ++i) y[i] = p * x[i] + q * y[i];
    }
}

tutti_status axpby(void*, size_t count, tutti_dtype dtype, double a, const void* x, double b,
                   void* y) {
    if (dtype == TUTTI_FLOAT32)
        combine<float>(count, a, x, b, y);
    else if (dtype == TUTTI_FLOAT64)
        combine<double>(count, a, x, b, y);
    else
        return TUTTI_ERR_UNSUPPORTED;
    return TUTTI_OK;
}

tutti_status run(void*, void (*work)(void*), void* argument) {
    work(argument);
    return TUTTI_OK;
}

tutti_status protect(void*, void* data, size_t bytes, tutti_access access) {
    const int allowed = access == TUTTI_ACCESS_NONE   ? PROT_NONE
                        : access == TUTTI_ACCESS_READ ? PROT_READ
                                                      : PROT_READ | PROT_WRITE;
    return ::mprotect(data, bytes, allowed) == 0 ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

tutti_status convert(void*, size_t count, tutti_dtype from_dtype, const void* from,
                     tutti_dtype to_dtype, void* to) {
    return tutti_convert(from, from_dtype, to, to_dtype, count);
}

}  // namespace

const tutti_device_functions& cpu_functions() {
    static constexpr tutti_device_functions functions = {sizeof(tutti_device_functions),
                                                         alloc,
                                                         release,
                                                         copy,
                                                         zero,
                                                         axpby,
                                                         run,
                                                         protect,
                                                         convert,
                                                         nullptr,
                                                         TUTTI_MEMORY_REACHABLE};
    return functions;
}

}  // namespace tutti::trainer
