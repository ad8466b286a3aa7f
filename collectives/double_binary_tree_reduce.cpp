#include "collectives/catalog.h"
#include "collectives/trees.h"

namespace tutti {

Lane double_tree_up(const TwoTreeNode& node, uint32_t chunk) {
    const Region in = Region::input(chunk), out = Region::output(chunk);
    const Region sum = Region::scratch(chunk, chunk);
    const bool top = node.parent == nobody;
    Lane lane;
    for (int i : {0, 1}) {
        if (node.children[i] == nobody) continue;
        lane.push_back({.recv = node.children[i],
                        .local = lane.empty() ? in : sum,
                        .out = sum,
                        .local_first = top || i == 1,
                        .in = node.leaf[i] ? Form::raw : Form::partial,
                        .local_form = lane.empty() ? Form::raw : Form::partial,
                        .result = Form::partial});
    }
    if (lane.empty()) lane.push_back({.local = in});
    lane.back().send = node.parent;
    lane.back().out = top ? out : Region{};
    if (top) lane.back().result = Form::final;
    return lane;
}

/// Double-binary-tree reduce: each half of the message goes up its own binary tree, tile by tile; a
/// rank that is inner in one tree is a leaf in the other.
/// Chunks: 2 × lanes, each in a lane of its own (2 × lanes of them). Scratch: one slot a chunk.
/// Any rank count ≥ 1, any root; not in rank order. Credits: 1. Generated in O(1).
/// Cost: ⌈log2 n⌉ hops, each rank sends all bytes once (bandwidth-optimal).
/// Source: Sanders, Speck & Träff, Parallel Computing 35(12), 2009.
Schedule double_binary_tree_reduce(const ScheduleRequest& request) {
    Schedule schedule;
    schedule.chunks = 2 * request.lanes;
    schedule.scratch_slots = schedule.chunks;
    for (uint32_t chunk = 0; chunk < schedule.chunks; ++chunk)
        schedule.lanes.push_back(double_tree_up(
            two_tree_node(request.ranks, request.rank, request.root, chunk % 2 != 0), chunk));
    return schedule;
}

}  // namespace tutti
