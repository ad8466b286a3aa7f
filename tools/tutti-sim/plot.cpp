#include "plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "proof/svg.h"
#include "units.h"

namespace tutti::sim {
namespace {

constexpr int left_px = 80, top_px = 50, plot_width_px = 640, plot_height_px = 420;
constexpr int legend_px = 200, bottom_px = 60;

// A logarithmic axis from one tick to another.
struct Axis {
    int base = 10;
    int from = 0, to = 1;  // powers of the base

    void cover(double low, double high) {
        from = static_cast<int>(std::floor(std::log(low) / std::log(base) + 1e-9));
        to = static_cast<int>(std::ceil(std::log(high) / std::log(base) - 1e-9));
        to = std::max(to, from + 1);
    }
    double at(double value) const {
        return (std::log(value) / std::log(base) - from) / (to - from);
    }
    double value(int power) const { return std::pow(base, power); }
};

struct Axes {
    Axis bytes{.base = 2}, us{};

    double x(double value) const { return left_px + plot_width_px * bytes.at(value); }
    double y(double value) const { return top_px + plot_height_px * (1 - us.at(value)); }
};

bool drawable(const Point& p) {
    return p.bytes > 0 && p.us > 0;
}

Axes axes_for(const std::vector<Curve>& curves) {
    double low_bytes = HUGE_VAL, high_bytes = 0, low_us = HUGE_VAL, high_us = 0;
    for (const Curve& c : curves)
        for (const Point& p : c.points) {
            if (!drawable(p)) continue;
            low_bytes = std::min(low_bytes, static_cast<double>(p.bytes));
            high_bytes = std::max(high_bytes, static_cast<double>(p.bytes));
            low_us = std::min(low_us, p.us);
            high_us = std::max(high_us, p.us);
        }
    Axes axes;
    if (high_bytes == 0) return axes;
    axes.bytes.cover(low_bytes, high_bytes);
    axes.us.cover(low_us, high_us);
    return axes;
}

std::string draw_axes(const Axes& axes) {
    constexpr int bottom = top_px + plot_height_px, right = left_px + plot_width_px;
    std::string svg;
    const int stride = (axes.bytes.to - axes.bytes.from) / 12 + 1;
    for (int power = axes.bytes.from; power <= axes.bytes.to; power += stride) {
        const double value = axes.bytes.value(power), x = axes.x(value);
        svg +=
            fmt::format(R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}" stroke="#eee"/>)"
                        R"(<text x="{0:.1f}" y="{3}" text-anchor="middle">{4}</text>)"
                        "\n",
                        x, top_px, bottom, bottom + 18, format_bytes(static_cast<uint64_t>(value)));
    }
    for (int power = axes.us.from; power <= axes.us.to; ++power) {
        const double value = axes.us.value(power), y = axes.y(value);
        svg += fmt::format(R"(<line x1="{0}" y1="{1:.1f}" x2="{2}" y2="{1:.1f}" stroke="#ddd"/>)"
                           R"(<text x="{3}" y="{4:.1f}" text-anchor="end">{5:g}</text>)"
                           "\n",
                           left_px, y, right, left_px - 8, y + 4, value);
    }
    svg += fmt::format(
        R"(<rect x="{}" y="{}" width="{}" height="{}" fill="none" stroke="#888"/>)"
        R"(<text x="{}" y="{}" text-anchor="middle">size (bytes)</text>)"
        R"svg(<text transform="translate(20 {}) rotate(-90)" text-anchor="middle">time (us)</text>)svg"
        "\n",
        left_px, top_px, plot_width_px, plot_height_px, left_px + plot_width_px / 2, bottom + 42,
        top_px + plot_height_px / 2);
    return svg;
}

std::string draw_curve(const Curve& curve, std::string_view colour, const Axes& axes) {
    std::string line, dots;
    for (const Point& p : curve.points) {
        if (!drawable(p)) continue;
        const double x = axes.x(static_cast<double>(p.bytes)), y = axes.y(p.us);
        line += fmt::format("{}{:.1f},{:.1f}", line.empty() ? "" : " ", x, y);
        dots += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)", x, y, colour);
        if (p.marked)
            dots += fmt::format(
                R"(<circle cx="{:.1f}" cy="{:.1f}" r="7" fill="none" stroke="black"/>)", x, y);
    }
    return fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>{})"
                       "\n",
                       line, colour, dots);
}

}  // namespace

std::string draw_plot(const std::vector<Curve>& curves, std::string_view title,
                      std::string_view marked) {
    const Axes axes = axes_for(curves);
    std::string svg =
        svg::open(left_px + plot_width_px + legend_px, top_px + plot_height_px + bottom_px, title) +
        draw_axes(axes);
    const int x = left_px + plot_width_px + 16;
    int y = top_px + 12;
    for (std::size_t i = 0; i < curves.size(); ++i, y += 20) {
        const std::string_view colour = svg::colour(i);
        svg += draw_curve(curves[i], colour, axes);
        svg += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}" stroke-width="2"/>)"
                           R"(<text x="{}" y="{}">{}</text>)"
                           "\n",
                           x, y, x + 20, y, colour, x + 28, y + 4, svg::escape(curves[i].name));
    }
    svg += fmt::format(R"(<circle cx="{}" cy="{}" r="7" fill="none" stroke="black"/>)"
                       R"(<text x="{}" y="{}">{}</text>)"
                       "\n",
                       x + 10, y, x + 28, y + 4, svg::escape(marked));
    return svg + "</svg>\n";
}

}  // namespace tutti::sim
