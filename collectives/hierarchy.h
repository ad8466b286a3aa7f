// Combines two levels, within hosts and between hosts, into one schedule.
#pragma once

#include "schedule/schedule.h"

namespace tutti {

/// The steps within a host that the outer schedule needs before it can use a chunk.
enum class Before : uint8_t {
    nothing,    // a chunk's carrier has it already
    reduce,     // all ranks contribute to the carrier's partial result (a barrier: to its
                // knowledge)
    from_root,  // on the root's host: the root sends it to the carrier
};

/// The steps within a host once the outer schedule has finished a chunk.
enum class Afterwards : uint8_t {
    nothing,
    to_all,
    to_root,  // on the root's host
};

/// An outer schedule's ranks are hosts. Its lanes must not wait for each other, lane l works on the
/// l-th of equal shares of its chunks, and runs of chunks do not wrap around. If the data is cut
/// into blocks, its messages are single chunks.
struct Composition {
    Collective collective = Collective::allreduce;
    Schedule (*outer)(const ScheduleRequest&) = nullptr;
    Before before = Before::nothing;
    Afterwards afterwards = Afterwards::nothing;
    bool one_stripe = false;  // only the lowest rank of a host works between hosts
};

/// The data is cut into S stripes, S the largest host's number of ranks. Each stripe goes through
/// an outer schedule of its own, in which stripe s of host h is carried by its local rank s mod
/// L_h; a host of fewer ranks than S serves the stripes in rounds. A whole message's chunks are the
/// outer chunks, stripe after stripe. If the data is cut into blocks, stripe s has the blocks of
/// every host's local rank s.
///
/// Contributions travel raw to the carrier, which adds them in its scratch; that partial sum takes
/// the place of the outer schedule's raw input. It is rounded once, where the outer schedule
/// rounds.
///
/// Lanes: the outer schedule's; in each, a tile goes through before, outer and afterwards, so two
/// lanes are needed: one fills the wire while the other's tile is in shared memory.
/// Without hosts, all ranks are assumed to be on one.
/// Scratch, on a carrier: a slot for each outer chunk (reduce: another) and the outer schedule's.
/// Generated in the outer schedule's time, and O(local ranks × outer chunks) for each round.
Schedule compose(const ScheduleRequest& request, const Composition& what);

/// The reason why there are not two levels, for Algorithm::unsupported; empty if there are.
std::string one_level(Rank ranks, const HostShape& hosts);

}  // namespace tutti
