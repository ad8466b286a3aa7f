// Memory that callers hand over.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// The address just past a buffer, as an integer. A buffer that a rank lacks is a null pointer, and
/// pointer arithmetic on it is undefined.
inline std::uintptr_t end_of(const void* buffer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(buffer) + bytes;
}

/// No byte is in both.
inline bool are_apart(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    return end_of(a, a_bytes) <= end_of(b, 0) || end_of(b, b_bytes) <= end_of(a, 0);
}

}  // namespace tutti
