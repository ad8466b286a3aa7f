#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level barrier: the ranks of a host signal its lowest rank, the lowest ranks signal each
/// other at doubling distances, and each signals the ranks of its host.
/// H hosts, L ranks on each. Chunks: one, of no elements. One lane. Any rank count ≥ 1, any hosts.
/// Credits: 1. Generated in O(L + log H).
/// Cost: ⌈log2 H⌉ rounds of empty messages over the wire, one a host; 2(L-1) messages in memory.
/// Source: Karonis, de Supinski et al., "Exploiting hierarchy in parallel computer networks", IPDPS
/// 2000; between hosts: Hensgen, Finkel & Manber, IJPP 17(1), 1988.
Schedule hierarchical_barrier(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::barrier,
                             .outer = dissemination_barrier,
                             .before = Before::reduce,
                             .afterwards = Afterwards::to_all,
                             .one_stripe = true});
}

}  // namespace tutti
