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

/// Least squares of the relative errors, no constant negative. A constant that the samples hardly
/// determine stays near `before`: each constant there weighs as much as `trust` samples.
Constants fit(std::span<const Sample> samples, const Constants& before, double trust);

}  // namespace tutti
