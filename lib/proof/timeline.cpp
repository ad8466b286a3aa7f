#include "proof/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "proof/svg.h"

namespace tutti::sim {
namespace {

constexpr int plot_px = 1000, left_px = 80, right_px = 40, top_px = 60, bottom_px = 70;
constexpr int max_row_px = 60, min_row_px = 8, all_rows_px = 900;
constexpr int ticks = 10;

struct Scale {
    double us = 1;  // the whole axis
    int row_px = 0;
    int rows = 0;

    double x(Picoseconds at) const { return left_px + plot_px * microseconds(at) / us; }
    double y(Rank rank) const { return top_px + row_px * (rank + 0.5); }
    int bottom() const { return top_px + row_px * rows; }
};

std::string draw_axes(const Scale& scale) {
    std::string svg;
    const double step = svg::tick_distance(scale.us, ticks);
    for (int i = 0; i * step <= scale.us * 1.0001; ++i) {
        const double x = left_px + plot_px * i * step / scale.us;
        svg += fmt::format(R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}" stroke="#eee"/>)"
                           R"(<text x="{0:.1f}" y="{3}" text-anchor="middle">{4:g}</text>)"
                           "\n",
                           x, top_px, scale.bottom(), scale.bottom() + 18, i * step);
    }
    svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">time (us)</text>)"
                       "\n",
                       left_px + plot_px / 2, scale.bottom() + 38);
    // Label only every n-th rank if rows are too low for every name.
    const int named = std::max(1, (14 + scale.row_px - 1) / scale.row_px);
    for (Rank r = 0; r < scale.rows; ++r) {
        svg += fmt::format(R"(<line x1="{}" y1="{:.1f}" x2="{}" y2="{:.1f}" stroke="#bbb"/>)",
                           left_px, scale.y(r), left_px + plot_px, scale.y(r));
        if (r % named == 0)
            svg += fmt::format(R"(<text x="{}" y="{:.1f}" text-anchor="end">rank {}</text>)",
                               left_px - 8, scale.y(r) + 4, r);
        svg += '\n';
    }
    return svg;
}

std::string draw_work(const Report& report, const Scale& scale) {
    std::string svg;
    const double height = std::min(8.0, scale.row_px / 3.0);
    for (const Work& w : report.work)
        svg += fmt::format(
            R"(<rect x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{:.1f}" fill="{}" opacity="0.6"/>)"
            "\n",
            scale.x(w.from), scale.y(w.rank) - height / 2,
            std::max(0.5, scale.x(w.to) - scale.x(w.from)), height, svg::colour(w.lane));
    return svg;
}

std::string draw_flights(const Report& report, const Scale& scale) {
    std::string svg;
    const bool sparse = report.flights.size() <= 2000;
    for (const Flight& f : report.flights) {
        const auto colour = svg::colour(f.lane);
        svg += fmt::format(
            R"(<line x1="{:.2f}" y1="{:.1f}" x2="{:.2f}" y2="{:.1f}" stroke="{}" stroke-width="{}">)",
            scale.x(f.sent), scale.y(f.from), scale.x(f.arrived), scale.y(f.to), colour,
            sparse ? 1.5 : 0.5);
        svg += fmt::format(
            "<title>{} to {}, lane {}, tile {}: {} bytes, {:.3f} to {:.3f} us"
            "</title></line>",
            f.from, f.to, f.lane, f.tile, f.bytes, microseconds(f.sent), microseconds(f.arrived));
        if (sparse)
            svg += fmt::format(R"(<circle cx="{:.2f}" cy="{:.1f}" r="2.5" fill="{}"/>)",
                               scale.x(f.arrived), scale.y(f.to), colour);
        svg += '\n';
    }
    return svg;
}

std::string draw_legend(const Report& report, int y) {
    std::size_t lanes = 1;
    for (const Flight& f : report.flights) lanes = std::max<std::size_t>(lanes, f.lane + 1);
    std::string svg;
    for (std::size_t lane = 0; lane < std::min<std::size_t>(lanes, 8); ++lane)
        svg += fmt::format(R"(<text x="{}" y="{}" fill="{}">lane {}</text>)"
                           "\n",
                           left_px + 60 * static_cast<int>(lane), y, svg::colour(lane), lane);
    return svg;
}

}  // namespace

std::string draw_timeline(const Report& report, std::string_view title) {
    Scale scale;
    scale.rows = static_cast<int>(report.ranks.size());
    scale.row_px = std::clamp(all_rows_px / scale.rows, min_row_px, max_row_px);
    Picoseconds last = report.time;
    for (const Flight& f : report.flights) last = std::max(last, f.arrived);
    scale.us = std::max(microseconds(last), 1e-6);
    const int width = left_px + plot_px + right_px, height = scale.bottom() + bottom_px;
    return svg::open(width, height, title) + draw_axes(scale) + draw_work(report, scale) +
           draw_flights(report, scale) + draw_legend(report, 44) + "</svg>\n";
}

}  // namespace tutti::sim
