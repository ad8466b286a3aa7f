#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level reduce-scatter: the ranks of a host reduce the blocks of all hosts' local ranks s
/// to its local rank s, which sends the sums round a ring of the hosts to their owners.
/// n ranks on H hosts, L on each. Chunks: n × lanes; lane l works on part l of every block.
/// Scratch: H slots a lane.
/// Any rank count ≥ 1, any hosts; not in rank order. Credits: 2. In place and out of place.
/// Generated in O(n) per lane.
/// Cost: H-1 hops over the wire, H(L-1) messages in memory; each host sends every block of
/// others once over the wire, each rank 1/L of them.
/// Source: Träff & Hunold, "Decomposing MPI collectives for exploiting multi-lane
/// communication", CLUSTER 2020.
Schedule hierarchical_reduce_scatter(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::reduce_scatter,
                             .outer = ring_reduce_scatter,
                             .before = Before::reduce});
}

}  // namespace tutti
