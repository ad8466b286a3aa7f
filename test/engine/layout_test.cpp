// Tests how Layout cuts a call's data into pieces.
#include "engine/layout.h"

#include "collectives/catalog.h"
#include "support/catch.h"

using namespace tutti;

namespace {

// An alltoallv of two ranks on two lanes: a block has a part on each.
Layout layout_of(const std::vector<std::size_t>& counts, bool short_blocks_whole) {
    const Schedule schedule =
        find_algorithm(Collective::alltoall, "pairwise")->make({.ranks = 2, .lanes = 2});
    LayoutRequest call;
    call.collective = Collective::alltoall;
    call.ranks = 2;
    call.input.counts = call.output.counts = counts;
    call.short_blocks_whole = short_blocks_whole;
    const Reducer floats = *Reducer::make(Dtype::float32, Op::sum);
    return Layout(cut_for(std::move(call), schedule, floats, 1 << 18));
}

}  // namespace

TEST_CASE("layout: short blocks lie in their first part where that is wanted, long ones in all") {
    constexpr std::size_t small = 16, large = 1 << 16;
    const Layout cut = layout_of({small, large}, false), whole = layout_of({small, large}, true);
    // Chunks: of rank 0's two blocks and of rank 1's the first parts, then the second ones.
    REQUIRE(cut.piece(Space::input, 0, 0).count == small / 2);
    REQUIRE(whole.piece(Space::input, 0, 0).count == small);
    REQUIRE(whole.piece(Space::input, 0, 4).count == 0);
    for (const Layout* layout : {&cut, &whole}) {
        REQUIRE(layout->piece(Space::input, 0, 1).count == large / 2);
        REQUIRE(layout->piece(Space::input, 0, 5).count == large / 2);
        REQUIRE(layout->longest_chunk() == large / 2);
        REQUIRE_FALSE(layout->later_part(3));
        REQUIRE(layout->later_part(4));
    }
    REQUIRE(layout_of({3, 1}, true).longest_chunk() == 3);
}
