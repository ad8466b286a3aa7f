// Comparisons of the buffers that callers pass.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// The address just past a buffer, as an integer. A missing buffer is a null pointer, and pointer
/// arithmetic on it is undefined.
inline std::uintptr_t end_of(const void* buffer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(buffer) + bytes;
}

/// Whether the buffers have no byte in common.
inline bool are_apart(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    return end_of(a, a_bytes) <= end_of(b, 0) || end_of(b, b_bytes) <= end_of(a, 0);
}

}  // namespace tutti
