#include "collectives/catalog.h"
#include "collectives/trees.h"

namespace tutti {

/// Double-binary-tree allreduce: each half of the message goes up its own binary tree to rank 0 and
/// down again, tile by tile; a rank that is inner in one tree is a leaf in the other.
/// Chunks: 2 × lanes, each in two lanes of its own, one up and one down (4 × lanes of them), so
/// that one tile goes up while another comes down. Scratch: one slot a chunk.
/// Any rank count ≥ 1; not in rank order. Credits: 1. In place and out of place.
/// Generated in O(1). Cost: 2⌈log2 n⌉ hops, no rank sends more than all bytes twice.
/// Source: Sanders, Speck & Träff, Parallel Computing 35(12), 2009.
Schedule double_binary_tree_allreduce(const ScheduleRequest& request) {
    Schedule schedule;
    schedule.chunks = 2 * request.lanes;
    schedule.scratch_slots = schedule.chunks;
    for (uint32_t chunk = 0; chunk < schedule.chunks; ++chunk) {
        const TwoTreeNode node = two_tree_node(request.ranks, request.rank, 0, chunk % 2 != 0);
        const Region out = Region::output(chunk);
        Lane up = double_tree_up(node, chunk);
        // In place, the way down overwrites the input that a leaf sends, so it sends a copy.
        if (up[0].recv == nobody && up[0].send != nobody) up[0].out = Region::scratch(chunk, chunk);
        Lane down = double_tree_down(node, out, out, Form::final);
        if (!down.empty())
            down[0].after = {static_cast<uint32_t>(schedule.lanes.size()),
                             static_cast<uint32_t>(up.size() - 1)};
        schedule.lanes.push_back(std::move(up));
        schedule.lanes.push_back(std::move(down));
    }
    return schedule;
}

}  // namespace tutti
