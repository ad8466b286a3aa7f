#include "collectives/catalog.h"
#include "collectives/trees.h"

namespace tutti {

Lane double_tree_down(const TwoTreeNode& node, const Region& from, const Region& out, Form form) {
    Lane lane;
    const bool top = node.parent == nobody;
    if (!top) lane.push_back({.recv = node.parent, .out = out, .in = form, .result = form});
    for (Rank child : node.children) {
        if (child == nobody) continue;
        const bool forwards = !top && lane.back().send == nobody;
        if (!forwards)
            lane.push_back({.local = top ? from : out, .local_form = form, .result = form});
        lane.back().send = child;
    }
    return lane;
}

/// Double-binary-tree broadcast: each half of the message goes down its own binary tree, tile by
/// tile; a rank that is inner in one tree is a leaf in the other.
/// Chunks: 2 × lanes, each in a lane of its own (2 × lanes of them). Any rank count ≥ 1, any root.
/// Credits: 1. Generated in O(1).
/// Cost: ⌈log2 n⌉ hops, no rank sends more than all bytes once (bandwidth-optimal).
/// Source: Sanders, Speck & Träff, Parallel Computing 35(12), 2009.
Schedule double_binary_tree_broadcast(const ScheduleRequest& request) {
    Schedule schedule;
    schedule.chunks = 2 * request.lanes;
    for (uint32_t chunk = 0; chunk < schedule.chunks; ++chunk) {
        const TwoTreeNode node =
            two_tree_node(request.ranks, request.rank, request.root, chunk % 2 != 0);
        schedule.lanes.push_back(
            double_tree_down(node, Region::input(chunk), Region::output(chunk), Form::raw));
    }
    return schedule;
}

}  // namespace tutti
