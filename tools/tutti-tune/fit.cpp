#include "fit.h"

#include <algorithm>

namespace tutti::tune {
namespace {

constexpr int sweeps = 2000;
constexpr double trust = 0.01;  // in `before`, as if it were so much of a measurement

}  // namespace

// Coordinate descent: one constant after the other to where it is best, given the others.
Constants fit(std::span<const Cell> cells, const Constants& before) {
    std::vector<Terms> rows;  // divided by their time: what is wanted is 1 = row · constants
    for (const Cell& cell : cells)
        for (const Time& time : cell.times) {
            Terms row = time.terms;
            for (double& value : row) value /= std::max(time.us, 1e-3);
            rows.push_back(row);
        }
    Constants constants = before;
    for (int sweep = 0; sweep < sweeps; ++sweep)
        for (std::size_t k = 0; k < term_count; ++k) {
            const double weight = trust / std::max(before[k] * before[k], 1e-6);
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

}  // namespace tutti::tune
