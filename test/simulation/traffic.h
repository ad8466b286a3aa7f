// The number of messages that agreements cost.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/types.h"

namespace simulation {

using namespace tutti;

class World;

/// Counts the messages that a rank sends for one call of agree or shrink. They are at most the
/// ranks and links that fail, times the logarithm of the ranks, times a constant:
///
/// A rank has a parent, and up to 8 children for each place in the tree that it has taken over from
/// ranks above it: 3 neighbours for each doubling of the ranks. In a round without a failure it
/// sends one message to each of them, and a shrink takes two rounds. A rank that dies, leaves,
/// stops or is accused changes the tree once: the ranks around it state, ask, answer and decide
/// again in both rounds. Ranks that wait for it ask again, with pauses that double.
class Traffic {
public:
    explicit Traffic(World& world) : world_(world) {}

    /// A rank or a link has failed, or a rank has left: anything that may need more messages.
    void trouble() { ++troubles_; }
    void accused(Rank accuser, Rank accused) {
        if (accuser != nobody && accusations_.insert({accuser, accused}).second) trouble();
    }
    /// A rank of a communicator of that size sends a message for its n-th agreement call.
    void sent(Rank rank, uint32_t comm, uint64_t call, Rank size);

private:
    World& world_;
    uint64_t troubles_ = 0;
    std::set<std::pair<Rank, Rank>> accusations_;
    std::map<std::tuple<Rank, uint32_t, uint64_t>, uint64_t> sent_;
};

}  // namespace simulation
