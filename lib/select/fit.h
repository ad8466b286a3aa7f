// Constants of the cost model from measured times.
#pragma once

#include <span>

#include "select/cost.h"

namespace tutti {

/// A measured operation: its terms and its time.
struct Sample {
    Terms terms{};
    double us = 0;
};

/// Least squares of the relative errors, no constant negative. What the samples say little about
/// stays near `before`, in which the trust is as if each of its constants were `trust` samples.
Constants fit(std::span<const Sample> samples, const Constants& before, double trust);

}  // namespace tutti
