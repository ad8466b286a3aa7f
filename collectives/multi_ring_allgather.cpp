#include "collectives/catalog.h"
#include "collectives/rings.h"

namespace tutti {

/// Several ring allgathers at once, each for its part of every block: half of the lanes go round
/// forward, half backward, and they cross hosts as in multi_ring_allreduce.
/// Chunks: ranks × 2 × lanes, in 2 × lanes lanes. Any rank count ≥ 1, any hosts. Credits: 2.
/// In place and out of place. Generated in O(n) per lane.
/// Cost: n-1 hops; each rank sends n-1 blocks (bandwidth-optimal), half of each block either way.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule multi_ring_allgather(const ScheduleRequest& request) {
    return multi_ring(request, ring_allgather_lane);
}

}  // namespace tutti
