#include "collectives/catalog.h"
#include "collectives/hierarchy.h"

namespace tutti {

/// Two-level broadcast: the root sends each stripe to its carrier, the carriers of a stripe send it
/// down binary trees of the hosts, and every carrier sends it to the ranks of its host.
/// H hosts, L ranks on each, S stripes, S the largest host's ranks.
/// Chunks: S × 2 × lanes, in 2 × lanes lanes. Any rank count ≥ 1, any hosts, any root. Credits: 1.
/// Generated in O(L) per lane and round.
/// Cost: ⌈log2 H⌉ hops over the wire, 2(L-1) messages in memory; no host sends or receives more
/// than all bytes once over the wire.
/// Source: Karonis, de Supinski et al., "Exploiting hierarchy in parallel computer networks", IPDPS
/// 2000; the trees: Sanders, Speck & Träff, Parallel Computing 35(12), 2009.
Schedule hierarchical_broadcast(const ScheduleRequest& request) {
    return compose(request, {.collective = Collective::broadcast,
                             .outer = double_binary_tree_broadcast,
                             .before = Before::from_root,
                             .afterwards = Afterwards::to_all});
}

}  // namespace tutti
