#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level allreduce for few bytes: the ranks of a host reduce to its lowest rank, the lowest
/// ranks exchange sums at doubling distances, and each sends the result to the ranks of its host.
/// H hosts, L ranks on each. Chunks: one a lane. Scratch: 3 slots a lane. Any rank count ≥ 1, any
/// hosts; not in rank order.
/// Credits: 1. In place and out of place. Generated in O(L + log H) per lane.
/// Cost: ⌈log2 H⌉ rounds over the wire (+1 unless H = 2^m), of all bytes once a host; 2(L-1)
/// messages in memory.
/// Source: Karonis, de Supinski et al., "Exploiting hierarchy in parallel computer networks", IPDPS
/// 2000.
Schedule hierarchical_doubling_allreduce(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::allreduce,
                             .outer = recursive_doubling_allreduce,
                             .before = Before::reduce,
                             .afterwards = Afterwards::to_all,
                             .one_stripe = true});
}

}  // namespace tutti
