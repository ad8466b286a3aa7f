#include "collectives/catalog.h"
#include "collectives/trees.h"

namespace tutti {

// After the children at distance `width`, a rank holds the sum of [me, me + radix × width).
Schedule knomial_tree_reduce(const ScheduleRequest& request, Rank radix) {
    const Rank n = request.ranks, me = request.rank, root = request.root;
    Schedule schedule;
    schedule.chunks = request.lanes;
    schedule.scratch_slots = request.lanes;
    for (uint32_t l = 0; l < request.lanes; ++l) {
        const Region in = Region::input(l), out = Region::output(l), sum = Region::scratch(l, l);
        Lane lane;
        Rank width = 1;
        for (; width < n && me / width % radix == 0; width *= radix)
            for (Rank child = me + width; child < std::min(n, me + radix * width); child += width)
                lane.push_back({.recv = child,
                                .local = lane.empty() ? in : sum,
                                .out = sum,
                                .local_first = true,
                                .in = width == 1 || child + 1 == n ? Form::raw : Form::partial,
                                .local_form = lane.empty() ? Form::raw : Form::partial,
                                .result = Form::partial});
        if (n == 1) {
            lane.push_back({.local = in, .out = out, .result = Form::final});
        } else if (me != 0) {
            // Combines the last child's contribution on its way to the parent.
            if (lane.empty()) lane.push_back({.local = in});
            lane.back().out = {};
            lane.back().send = me - me % (radix * width);
        } else {
            lane.back().out = root == 0 ? out : Region{};
            lane.back().send = root == 0 ? nobody : root;
            lane.back().result = Form::final;
        }
        if (root != 0 && me == root)
            lane.push_back({.recv = 0, .out = out, .in = Form::final, .result = Form::final});
        schedule.lanes.push_back(std::move(lane));
    }
    return schedule;
}

/// Binomial-tree reduce in rank order: rank 0 is the top of the tree for every root, and sends the
/// result on to a root that is not rank 0.
/// Chunks: one a lane. Scratch: one slot a lane. Any rank count ≥ 1, any root. Credits: 1.
/// Generated in O(log n). Cost: ⌈log2 n⌉ rounds of all bytes (+1 unless the root is 0); rank 0
/// receives them ⌈log2 n⌉ times, every other rank sends them once.
/// Source: Thakur, Rabenseifner & Gropp, IJHPCA 19(1), 2005.
Schedule binomial_reduce(const ScheduleRequest& request) {
    return knomial_tree_reduce(request, 2);
}

}  // namespace tutti
