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
    if (!is_float(dtype)) {
        for (std::size_t i = 0; i < numbers.size(); ++i) {
            const auto whole = static_cast<int64_t>(numbers[i]);
            std::memcpy(out.data() + i * bytes, &whole, bytes);
        }
    } else if (dtype == Dtype::float64) {
        if (!numbers.empty()) std::memcpy(out.data(), numbers.data(), out.size());
    } else {
        const std::vector<float> narrow(numbers.begin(), numbers.end());
        if (dtype == Dtype::float32) {
            if (!narrow.empty()) std::memcpy(out.data(), narrow.data(), out.size());
            return out;
        }
        // A sum's accumulator rounded to its type.
        Reducer::make(dtype, Op::sum)
            ->move(Width::partial, Width::final,
                   false)({.dst = out.data(),
                           .a = reinterpret_cast<const std::byte*>(narrow.data()),
                           .count = narrow.size()});
    }
    return out;
}

}  // namespace tutti::test
