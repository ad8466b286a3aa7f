#include "collectives/catalog.h"
#include "collectives/rings.h"

namespace tutti {

/// Several ring allreduces at once, each on its own chunks: half of the lanes go round forward,
/// half backward. If the hosts are known, each ring goes host after host, and a pair of lanes
/// crosses between hosts through other ranks than the next pair.
/// Chunks: ranks × 2 × lanes, in 2 × lanes lanes. Any rank count ≥ 1, any hosts; not in rank
/// order.
/// Credits: 2. In place and out of place. Generated in O(n) per lane.
/// Cost: 2(n-1) hops, 2(n-1)/n of the bytes per rank (bandwidth-optimal), half of them each
/// way.
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009; several rings: Jeaugey, "NCCL 2.0", GTC 2017.
Schedule multi_ring_allreduce(const ScheduleRequest& request) {
    return multi_ring(request, ring_allreduce_lane);
}

}  // namespace tutti
