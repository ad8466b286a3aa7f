#include "simulation/traffic.h"

#include <bit>

#include "simulation/world.h"

namespace simulation {
namespace {

// For 3 neighbours: two rounds of a statement, a question, an answer and a decision. The most that
// was seen are 9.
constexpr uint64_t messages_a_level = 3 * 2 * 4;

}  // namespace

void Traffic::sent(Rank rank, uint32_t comm, uint64_t call, Rank size) {
    const uint64_t count = ++sent_[{rank, comm, call}];
    const auto levels = static_cast<uint64_t>(std::bit_width(static_cast<uint32_t>(size - 1))) + 1;
    if (count == messages_a_level * (troubles_ + 2) * levels + 1)
        world_.checks().fail(
            "rank {}: call {} of communicator {} has cost more than {} messages after {} failures",
            rank, call, comm, count - 1, troubles_);
}

}  // namespace simulation
