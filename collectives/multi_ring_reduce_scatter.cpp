#include "collectives/catalog.h"
#include "collectives/rings.h"

namespace tutti {

/// Several ring reduce-scatters at once, each for its part of every block: half of the lanes go
/// round forward, half backward, and they cross hosts as in multi_ring_allreduce.
/// Chunks: ranks × 2 × lanes, in 2 × lanes lanes. Any rank count ≥ 1, any hosts; not in rank order.
/// Credits: 2. In place and out of place. Generated in O(n) per lane.
/// Cost: n-1 hops; each rank sends n-1 blocks (bandwidth-optimal), half of each block either way.
/// Source: Patarasuk & Yuan, JPDC 69(2), 2009.
Schedule multi_ring_reduce_scatter(const ScheduleRequest& request) {
    return multi_ring(request, ring_reduce_scatter_lane);
}

}  // namespace tutti
