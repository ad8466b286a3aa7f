// The median, for programs that compare alternating blocks.
#pragma once

#include <algorithm>
#include <vector>

namespace bench {

/// The list is not empty. An even number of values has two in the middle: this is the upper one.
inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace bench
