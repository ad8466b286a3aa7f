// Memory that callers hand over.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// No byte is in both. A null pointer stands for a buffer that a rank does not have.
inline bool are_apart(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
    // As numbers: nothing may be added to a null pointer.
    const auto at_a = reinterpret_cast<std::uintptr_t>(a);
    const auto at_b = reinterpret_cast<std::uintptr_t>(b);
    return at_a + a_bytes <= at_b || at_b + b_bytes <= at_a;
}

}  // namespace tutti
