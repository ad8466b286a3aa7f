// Memory that callers hand over.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Where a buffer ends, as a number: nothing may be added to a null pointer, which stands for a
/// buffer that a rank does not have.
inline std::uintptr_t end_of(const void* buffer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(buffer) + bytes;
}

/// No byte is in both.
inline bool are_apart(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    return end_of(a, a_bytes) <= end_of(b, 0) || end_of(b, b_bytes) <= end_of(a, 0);
}

}  // namespace tutti
