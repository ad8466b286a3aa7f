// Curves over sizes as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::sim {

struct Point {
    uint64_t bytes = 0;
    double us = 0;
    bool marked = false;
};

struct Curve {
    std::string name;
    std::vector<Point> points;
};

/// Times over sizes as SVG, both axes logarithmic, a line for each curve, a ring around each marked
/// point. Points of no bytes or no time have no place on such axes and are left out.
std::string draw_plot(const std::vector<Curve>& curves, std::string_view title,
                      std::string_view marked);

}  // namespace tutti::sim
