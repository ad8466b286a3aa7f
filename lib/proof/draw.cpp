#include "proof/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "proof/svg.h"
#include "schedule/words.h"

namespace tutti {
namespace {

constexpr int column_px = 120, row_px = 34, margin_px = 60;

struct Arrow {
    Rank from, to;
    int from_row, to_row;
    std::size_t lane;
    uint32_t chunk;
};

// Rows are logical time: a step stands one row below the later of its lane's previous step and the
// message it receives.
class DrawingRows {
public:
    explicit DrawingRows(const std::vector<Schedule>& by_rank) : by_rank_(by_rank) {
        std::size_t lanes = 0;
        for (const Schedule& s : by_rank) lanes = std::max(lanes, s.lanes.size());
        next_step_.assign(by_rank.size(), std::vector<std::size_t>(lanes));
        row_.assign(by_rank.size(), std::vector<int>(lanes));
        for (bool moved = true; moved;) {
            moved = false;
            for (std::size_t r = 0; r < by_rank.size(); ++r)
                for (std::size_t l = 0; l < by_rank[r].lanes.size(); ++l) moved |= place(r, l);
        }
    }
    std::vector<Arrow> arrows;
    int rows = 0;

private:
    bool place(std::size_t rank, std::size_t lane) {
        const Lane& steps = by_rank_[rank].lanes[lane];
        std::size_t& at = next_step_[rank][lane];
        if (at >= steps.size()) return false;
        const Step& step = steps[at];
        const auto me = static_cast<Rank>(rank);
        int row = row_[rank][lane];
        if (step.recv != nobody) {
            auto& waiting = messages_[{step.recv, me, lane}];
            if (waiting.empty()) return false;
            row = std::max(row, arrows[waiting.front()].from_row + 1);
            arrows[waiting.front()].to_row = row;
            waiting.pop_front();
        }
        if (step.send != nobody) {
            messages_[{me, step.send, lane}].push_back(arrows.size());
            arrows.push_back({me, step.send, row, row + 1, lane, step.extent().chunk});
        }
        row_[rank][lane] = row + (step.recv == nobody ? 0 : 1);
        rows = std::max(rows, row + 2);
        ++at;
        return true;
    }
    const std::vector<Schedule>& by_rank_;
    std::vector<std::vector<std::size_t>> next_step_;
    std::vector<std::vector<int>> row_;
    std::map<std::tuple<Rank, Rank, std::size_t>, std::deque<std::size_t>> messages_;
};

}  // namespace

std::string draw_text(const std::vector<Schedule>& by_rank) {
    std::string text;
    for (std::size_t r = 0; r < by_rank.size(); ++r)
        for (std::size_t l = 0; l < by_rank[r].lanes.size(); ++l)
            for (std::size_t s = 0; s < by_rank[r].lanes[l].size(); ++s)
                text += fmt::format("rank {} lane {} step {}: {}\n", r, l, s,
                                    describe(by_rank[r].lanes[l][s]));
    return text;
}

std::string draw_svg(const std::vector<Schedule>& by_rank, std::string_view title) {
    const DrawingRows layout(by_rank);
    const int width = 2 * margin_px + column_px * static_cast<int>(by_rank.size() - 1);
    const int height = 2 * margin_px + row_px * layout.rows;
    const auto x = [](Rank rank) { return margin_px + column_px * rank; };
    const auto y = [](int row) { return margin_px + row_px * row; };
    std::string drawing = svg::open(width, height, title);
    for (std::size_t r = 0; r < by_rank.size(); ++r) {
        const int column = x(static_cast<Rank>(r));
        drawing += fmt::format(
            R"(<text x="{0}" y="44" text-anchor="middle">rank {1}</text><line x1="{0}" y1="{2}" x2="{0}" y2="{3}" stroke="#bbb"/>)"
            "\n",
            column, r, margin_px - 8, height - margin_px / 2);
    }
    for (const Arrow& a : layout.arrows) {
        const auto colour = svg::colour(a.lane);
        const int x1 = x(a.from), y1 = y(a.from_row), x2 = x(a.to), y2 = y(a.to_row);
        drawing += fmt::format(
            R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}" stroke-width="1.5"/>)"
            R"(<circle cx="{}" cy="{}" r="3" fill="{}"/><text x="{}" y="{}" fill="{}">{}</text>)"
            "\n",
            x1, y1, x2, y2, colour, x2, y2, colour, (x1 + x2) / 2, (y1 + y2) / 2 - 3, colour,
            a.chunk);
    }
    return drawing + "</svg>\n";
}

}  // namespace tutti
