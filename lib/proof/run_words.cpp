// The error messages of a symbolic run.
#include <fmt/format.h>

#include <algorithm>

#include "proof/run.h"
#include "schedule/words.h"

namespace tutti {

std::string SymbolicRun::at(Rank rank, std::size_t lane) const {
    const LaneState& state = state_of(rank).lanes[lane];
    return fmt::format("rank {} lane {} step {} (tile {})", rank, lane, state.step, state.tile);
}

bool SymbolicRun::complain(Rank rank, std::size_t lane, const std::string& what) {
    const RankState& state = state_of(rank);
    const Step& step = state.schedule.lanes[lane][state.lanes[lane].step];
    problem = fmt::format("{}: {}: {}", at(rank, lane), what, describe(step));
    return false;
}

// The first in the order of senders, receivers and lanes.
bool SymbolicRun::find_unreceived() {
    for (Rank rank = 0; rank < r_.ranks; ++rank) {
        const Step* first = nullptr;
        std::size_t lane = 0;
        uint32_t channel = 0;
        const RankState& state = state_of(rank);
        for (std::size_t l = 0; l < state.lanes.size(); ++l)
            for (std::size_t s = 0; s < state.lanes[l].ports.size(); ++s) {
                const uint32_t out = state.lanes[l].ports[s].out;
                const Step& step = state.schedule.lanes[l][s];
                if (out == Ports::none || queues_.waiting(out) == 0) continue;
                if (first && first->send <= step.send) continue;
                first = &step;
                lane = l;
                channel = out;
            }
        if (!first) continue;
        const SymbolicChannels::SymbolicMessage& message = queues_.front(channel);
        problem = fmt::format(
            "rank {} lane {} step {} (tile {}): sends a message that rank {} never receives", rank,
            lane, message.step, message.tile, first->send);
        return true;
    }
    return false;
}

// Checks in the same order as advance(). A lane that waits for a finished lane comes first: it has
// the error, and the other lanes only wait for it.
std::string SymbolicRun::waits_for(Rank rank, std::size_t lane) {
    const RankState& state = state_of(rank);
    const LaneState& here = state.lanes[lane];
    const Step& step = state.schedule.lanes[lane][here.step];
    if (step.after) {
        const LaneState& other = state.lanes[step.after.lane];
        if (other.tile < here.tile || (other.tile == here.tile && other.step <= step.after.step))
            return fmt::format("its lane {} step {}", step.after.lane, step.after.step);
    }
    if (step.recv != nobody && queues_.waiting(here.ports[here.step].in) == 0)
        return fmt::format("a message from rank {}{}", step.recv,
                           done(step.recv, lane) ? ", which has finished" : "");
    return fmt::format("a credit of rank {}{}", step.send,
                       done(step.send, lane) ? ", which has finished" : "");
}

void SymbolicRun::explain_deadlock() {
    deadlock = true;
    std::vector<std::string> stuck;
    std::size_t roots = 0;
    for (Rank rank = 0; rank < r_.ranks; ++rank)
        for (std::size_t lane = 0; lane < state_of(rank).lanes.size(); ++lane) {
            if (done(rank, lane)) continue;
            stuck.push_back(fmt::format("{} waits for {}", at(rank, lane), waits_for(rank, lane)));
            if (stuck.back().ends_with("finished")) std::swap(stuck[roots++], stuck.back());
        }
    const std::size_t named = std::min<std::size_t>(stuck.size(), 4);
    problem = fmt::format("deadlock: {}", fmt::join(stuck.begin(), stuck.begin() + named, "; "));
    if (stuck.size() > named) problem += fmt::format("; and {} more lanes", stuck.size() - named);
}

}  // namespace tutti
