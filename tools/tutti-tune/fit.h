// Constants of the cost model from measured times.
#pragma once

#include <span>

#include "measure.h"

namespace tutti::tune {

/// Least squares of the relative errors, no constant negative. What the measurements say little
/// about stays near `before`.
Constants fit(std::span<const Cell> cells, const Constants& before);

}  // namespace tutti::tune
