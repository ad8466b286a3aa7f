// Numbers in the library's element types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "reduce/reduce.h"

namespace tutti::test {

/// The numbers, which the type holds; or else their fp32, rounded to it.
inline std::vector<std::byte> encoded(Dtype dtype, std::span<const double> numbers) {
    const std::size_t bytes = dtype_bytes(dtype);
    std::vector<std::byte> out(numbers.size() * bytes);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        std::byte* at = out.data() + i * bytes;
        const auto narrow = static_cast<float>(numbers[i]);
        if (!is_float(dtype)) {
            const auto whole = static_cast<int64_t>(numbers[i]);
            std::memcpy(at, &whole, bytes);
        } else if (dtype == Dtype::float64) {
            std::memcpy(at, &numbers[i], bytes);
        } else if (dtype == Dtype::float32) {
            std::memcpy(at, &narrow, bytes);
        } else {
            // A sum's accumulator rounded to its type.
            Reducer::make(dtype, Op::sum)
                ->move(Width::partial, Width::final, false)(
                    {.dst = at, .a = reinterpret_cast<const std::byte*>(&narrow), .count = 1});
        }
    }
    return out;
}

}  // namespace tutti::test
