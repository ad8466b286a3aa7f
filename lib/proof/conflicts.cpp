#include "proof/conflicts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "schedule/words.h"

namespace tutti {
namespace {

using Place = std::pair<Space, uint32_t>;
using Node = std::pair<uint32_t, uint32_t>;  // lane, step

struct Access {
    Node node;
    bool writes = false;
    bool sends = false;  // the channel may read the memory even after the step
};

class StepOrder {
public:
    explicit StepOrder(const Schedule& schedule) : schedule_(schedule) {}

    /// Whether `first` has finished before `second` starts, within one tile.
    bool before(const Node& first, const Node& second) const {
        std::set<Node> seen;
        return search(first, second, seen);
    }

private:
    // Searches backwards from `to`, through its own lane's earlier steps and their `after`s.
    bool search(const Node& from, const Node& to, std::set<Node>& seen) const {
        if (!seen.insert(to).second) return false;
        if (from.first == to.first && from.second < to.second) return true;
        for (uint32_t s = 0; s <= to.second; ++s) {
            const After& after = schedule_.lanes[to.first][s].after;
            if (!after) continue;
            const Node other{after.lane, after.step};
            if (other == from || search(from, other, seen)) return true;
        }
        return false;
    }
    const Schedule& schedule_;
};

/// Sorted by place; accesses of one place in the order of lanes and steps.
std::vector<std::pair<Place, Access>> accesses(const Schedule& schedule, const Places& where,
                                               bool in_place) {
    std::vector<std::pair<Place, Access>> places;
    const auto note = [&](const Region& region, const Step& step, Access access) {
        if (!region) return;
        const bool scratch = region.space == Space::scratch;
        const Space space = scratch || !in_place ? region.space : Space::output;
        for (uint32_t i = 0; i < step.chunks; ++i) {
            const uint32_t at =
                scratch ? region.slot + step.slots.offset(i)
                        : where.position(region.space, schedule.chunk_at(region.chunk, i));
            places.push_back({{space, at}, access});
        }
    };
    for (uint32_t l = 0; l < schedule.lanes.size(); ++l)
        for (uint32_t s = 0; s < schedule.lanes[l].size(); ++s) {
            const Step& step = schedule.lanes[l][s];
            const bool sends = step.send != nobody;
            note(step.local, step, {{l, s}, false, sends && !step.out && step.recv == nobody});
            note(step.out, step, {{l, s}, true, sends});
        }
    std::stable_sort(places.begin(), places.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    return places;
}

bool ordered(const StepOrder& order, const Schedule& schedule, const Access& a, const Access& b,
             bool scratch) {
    const bool a_first = order.before(a.node, b.node);
    if (!a_first && !order.before(b.node, a.node)) return false;
    const Access& first = a_first ? a : b;
    const Access& second = a_first ? b : a;
    // No signal tells another lane when a channel no longer reads the memory.
    if (first.sends && second.writes) return false;
    if (!scratch) return true;
    // The next tile reuses the slot, so the first lane must have waited for the second lane's step.
    const auto last = static_cast<uint32_t>(schedule.lanes[first.node.first].size() - 1);
    return order.before(second.node, {first.node.first, last}) && !(second.sends && first.writes);
}

}  // namespace

std::string find_conflict(const Schedule& schedule, const Places& where, bool in_place) {
    if (schedule.lanes.size() < 2) return {};
    const StepOrder order(schedule);
    const auto list = accesses(schedule, where, in_place);
    for (std::size_t i = 0; i < list.size(); ++i)
        for (std::size_t j = i + 1; j < list.size() && list[j].first == list[i].first; ++j) {
            const auto& [place, a] = list[i];
            const Access& b = list[j].second;
            if (a.node.first == b.node.first || !(a.writes || b.writes)) continue;
            if (ordered(order, schedule, a, b, place.first == Space::scratch)) continue;
            return fmt::format(
                "lane {} step {} and lane {} step {} both use {} and nothing orders them",
                a.node.first, a.node.second, b.node.first, b.node.second,
                describe(Region{place.first, place.second, place.second}, 1));
        }
    return {};
}

}  // namespace tutti
