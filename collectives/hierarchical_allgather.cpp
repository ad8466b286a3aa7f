#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level allgather: the blocks of all hosts' local ranks s go round a ring of the hosts,
/// carried by local rank s of each host, which sends them to the other ranks of its host.
/// n ranks on H hosts, L on each. Chunks: n × lanes; lane l works on part l of every block.
/// Any rank count ≥ 1, any hosts. Credits: 2. In place and out of place. Generated in O(n) per
/// lane.
/// Cost: H-1 hops over the wire, H(L-1) messages in memory; each host receives every block of
/// others once over the wire, each rank 1/L of them.
/// Source: Träff & Hunold, "Decomposing MPI collectives for exploiting multi-lane communication",
/// CLUSTER 2020.
Schedule hierarchical_allgather(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::allgather,
                             .outer = ring_allgather,
                             .afterwards = Afterwards::to_all});
}

}  // namespace tutti
