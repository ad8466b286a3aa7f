#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level reduce: the ranks of a host reduce each stripe to its carrier, the carriers of a
/// stripe reduce it up binary trees of the hosts, and the carriers on the root's host send it to
/// the root.
/// H hosts, L ranks on each, S stripes, S the largest host's ranks.
/// Chunks: S × 2 × lanes, in 2 × lanes lanes. Scratch: 3 slots a lane. Any rank count ≥ 1, any
/// hosts, any root; not in rank order. Credits: 1.
/// Generated in O(L) per lane and round.
/// Cost: ⌈log2 H⌉ hops over the wire, 2(L-1) messages in memory; no host sends or receives more
/// than all bytes once over the wire.
/// Source: Karonis, de Supinski et al., "Exploiting hierarchy in parallel computer networks", IPDPS
/// 2000; the trees: Sanders, Speck & Träff, Parallel Computing 35(12), 2009.
Schedule hierarchical_reduce(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::reduce,
                             .outer = double_binary_tree_reduce,
                             .before = Before::reduce,
                             .afterwards = Afterwards::to_root});
}

}  // namespace tutti
