#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level allreduce: the ranks of a host reduce each stripe to its carrier, the carriers of a
/// stripe go round a ring of the hosts, and every carrier sends the result to the ranks of its
/// host.
/// H hosts, L ranks on each, S stripes, S the largest host's ranks.
/// Chunks: S × H × lanes. Scratch: H slots a lane. Any rank count ≥ 1, any hosts; not in rank
/// order.
/// Credits: 2. In place and out of place. Generated in O(L·H) per lane and round.
/// Cost: 2(H-1) hops over the wire, 2H(L-1) messages in memory; each host sends 2(H-1)/H of the
/// bytes over the wire (bandwidth-optimal), each rank 1/L of that.
/// Source: Karonis, de Supinski et al., "Exploiting hierarchy in parallel computer networks", IPDPS
/// 2000; carriers of stripes: Träff & Hunold, CLUSTER 2020.
Schedule hierarchical_allreduce(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::allreduce,
                             .outer = ring_allreduce,
                             .before = Before::reduce,
                             .afterwards = Afterwards::to_all});
}

}  // namespace tutti
