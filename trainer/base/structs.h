// Structs of the C API that begin with their size, so that later versions can add fields.
#pragma once

#include <algorithm>
#include <cstring>

#include "trainer/base/result.h"

namespace tutti::trainer {

/// Copies the caller's struct over the defaults; an older program's is shorter, a newer one's
/// longer.
/// name: "function: argument", or the argument alone if the boundary names the function.
template <typename T>
Result<T> read_struct(const char* name, const T* given, const T& defaults,
                      const char* initializer) {
    T known = defaults;
    if (!given) return known;
    if (given->struct_size < sizeof(std::size_t))
        return fail(TUTTI_ERR_INVALID, "{}.struct_size is {}, which is too small", name,
                    given->struct_size)
            .advice("initialise the struct with {}", initializer);
    std::memcpy(&known, given, std::min(given->struct_size, sizeof known));
    return known;
}

}  // namespace tutti::trainer
