// The median, for programs that compare alternating blocks.
#pragma once

#include <algorithm>
#include <vector>

namespace bench {

/// values must not be empty. For an even number of values, returns the upper one of the two in the
/// middle.
inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

}  // namespace bench
