#include "select/fit.h"

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

constexpr int sweeps = 2000;
constexpr double least_us = 1e-3;

}  // namespace

// Coordinate descent: optimises one constant after the other, given the others.
Constants fit(std::span<const Sample> samples, const Constants& before, double trust) {
    std::vector<Terms> rows;  // divided by their time, so that the fit is 1 = row · constants
    for (const Sample& sample : samples) {
        Terms row = sample.terms;
        for (double& value : row) value /= std::max(sample.us, least_us);
        rows.push_back(row);
    }
    Constants constants = before;
    for (int sweep = 0; sweep < sweeps; ++sweep)
        for (std::size_t k = 0; k < term_count; ++k) {
            const double weight = trust / std::max(before[k] * before[k], least_us * least_us);
            double up = weight * before[k], down = weight;
            for (const Terms& row : rows) {
                const double rest = 1 - time_us(row, constants) + row[k] * constants[k];
                up += row[k] * rest;
                down += row[k] * row[k];
            }
            constants[k] = std::max(0.0, up / down);
        }
    return constants;
}

}  // namespace tutti
