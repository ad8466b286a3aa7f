#include <algorithm>
#include <vector>

#include "trainer/device/device.h"

namespace {

using tutti::trainer::Result;

Result<> done(tutti_status status, const std::string& what) {
    if (status == TUTTI_OK) return {};
    return tutti::trainer::fail(status, "the device could not {}: {}", what,
                                tutti_status_string(status));
}

}  // namespace

Result<void*> tutti_device::alloc(std::size_t bytes) {
    void* data = nullptr;
    TRAINER_TRY(
        done(functions_.alloc(user_, bytes, &data), fmt::format("allocate {} bytes", bytes)));
    return data;
}

Result<> tutti_device::copy(void* to, const void* from, std::size_t bytes) {
    if (!bytes || to == from) return {};
    const tutti_status status = functions_.copy(user_, to, from, bytes);
    return status == TUTTI_OK ? Result<>() : done(status, fmt::format("copy {} bytes", bytes));
}

Result<> tutti_device::copy_from(tutti_device& other, void* to, const void* from,
                                 std::size_t bytes) {
    if (&other == this) return copy(to, from, bytes);
    if (!bytes) return {};
    if (is_like(other)) {
        if (!functions_.copy_peer) return copy(to, from, bytes);
        const tutti_status status = functions_.copy_peer(user_, to, other.user_, from, bytes);
        return status == TUTTI_OK
                   ? Result<>()
                   : done(status, fmt::format("copy {} bytes of another device", bytes));
    }
    constexpr std::size_t piece_bytes = std::size_t{1} << 20;
    std::vector<std::byte> piece(std::min(bytes, piece_bytes));
    for (std::size_t at = 0; at < bytes; at += piece.size()) {
        const std::size_t part = std::min(piece.size(), bytes - at);
        TRAINER_TRY(other.copy(piece.data(), static_cast<const std::byte*>(from) + at, part));
        TRAINER_TRY(copy(static_cast<std::byte*>(to) + at, piece.data(), part));
    }
    return {};
}

Result<> tutti_device::zero(void* data, std::size_t bytes) {
    if (!bytes) return {};
    const tutti_status status = functions_.zero(user_, data, bytes);
    return status == TUTTI_OK ? Result<>() : done(status, fmt::format("zero {} bytes", bytes));
}

Result<> tutti_device::axpby(std::size_t count, tutti_dtype dtype, double a, const void* x,
                             double b, void* y) {
    if (!count) return {};
    const tutti_status status = functions_.axpby(user_, count, dtype, a, x, b, y);
    if (status == TUTTI_OK) return {};
    const char* name = tutti_dtype_name(dtype);
    Result<> failed =
        done(status, fmt::format("add {} elements of {}", count, name ? name : "no dtype"));
    if (status == TUTTI_ERR_UNSUPPORTED)
        failed.error().advice = "use float32 or float64, or a functions.axpby for this dtype";
    return failed;
}

Result<> tutti_device::run(void (*work)(void*), void* argument) {
    return done(functions_.run(user_, work, argument), "run an operation");
}

Result<> tutti_device::protect(void* data, std::size_t bytes, tutti_access access) {
    return done(functions_.protect(user_, data, bytes, access),
                fmt::format("protect {} bytes", bytes));
}

Result<> tutti_device::convert(std::size_t count, tutti_dtype from_dtype, const void* from,
                               tutti_dtype to_dtype, void* to) {
    if (from_dtype == to_dtype) return copy(to, from, count * tutti_dtype_size(to_dtype));
    if (!count) return {};
    const tutti_status status = functions_.convert(user_, count, from_dtype, from, to_dtype, to);
    if (status == TUTTI_OK) return {};
    return done(status, fmt::format("convert {} elements of {} to {}", count,
                                    tutti_dtype_name(from_dtype), tutti_dtype_name(to_dtype)));
}
