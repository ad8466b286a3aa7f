// Rings through all ranks, and the lanes of algorithms that use them.
#pragma once

#include "schedule/schedule.h"

namespace tutti {

/// A rank's place in a ring. Positions are found in O(1), without tables.
class RingOrder {
public:
    /// In the order of the ranks.
    RingOrder(Rank ranks, Rank rank) : ranks_(ranks), position_(rank) {}
    /// The ring of one lane: even lanes go forward, odd ones backward, so that both directions of a
    /// link are used. If the hosts are known, the ring visits one host after the other, and each
    /// pair of lanes enters and leaves a host through different ranks.
    RingOrder(const ScheduleRequest& request, uint32_t lane);

    Rank size() const { return ranks_; }
    Rank position() const { return position_; }
    /// The rank `steps` ahead, or behind if that is negative; at most once round.
    Rank ahead(Rank steps) const { return at((position_ + steps + ranks_) % ranks_); }
    Rank next() const { return ahead(1); }
    Rank prev() const { return ahead(-1); }

private:
    Rank at(Rank position) const;

    Rank ranks_, position_;
    const Hosts* hosts_ = nullptr;
    Rank turn_ = 0;  // the rotation of the ranks of each host
    bool backward_ = false;
};

/// A rank's steps of a ring allreduce of the chunks from `first` on, one per position.
Lane ring_allreduce_lane(const RingOrder& ring, uint32_t first);

/// A rank's steps of a ring allgather or reduce-scatter of the blocks from chunk `first` on.
Lane ring_allgather_lane(const RingOrder& ring, uint32_t first);
Lane ring_reduce_scatter_lane(const RingOrder& ring, uint32_t first);

/// A schedule with two lanes for each requested one, in opposite directions.
Schedule multi_ring(const ScheduleRequest& request, Lane (*lane)(const RingOrder&, uint32_t first));

}  // namespace tutti
