// Tests that an engine bounds the memory that a peer can make it keep (transport/peer_limits.h).
#include "transport/fake_port.h"
#include "transport/posted/cells.h"

namespace tutti::test {
namespace {

TEST_CASE("fabric: a peer is lost that sends too many bytes which nobody reads") {
    const GoodManners afterwards;
    fake_limits.unread_bytes = 1'000'000;
    Duo duo(fake_kind);
    const Buffer data = pattern(60'000, 1);
    const auto push = [&](Duo::Lane& lane, uint64_t messages) {
        for (uint64_t sent = 0; sent < messages; ++sent) {
            REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->can_push(); }));
            lane.sender->push(make_tag(sent), data.data(), data.size());
        }
    };
    std::vector<Duo::Lane> lanes;
    for (uint16_t lane = 0; lane < 3; ++lane) lanes.push_back(duo.open(lane));
    for (std::size_t i = 0; i < 2; ++i) {
        push(lanes[i], credits_per_channel);
        REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lanes[i].sender->drained(); }));
    }
    CHECK(duo.b.sink.lost().empty());
    push(lanes[2], 1);
    REQUIRE(eventually({&duo.a, &duo.b}, [&] { return !duo.b.sink.lost().empty(); }));
    CHECK(duo.b.sink.lost()[0].second ==
          "it sent more than 1000000 bytes that this rank has not read");
}

}  // namespace
}  // namespace tutti::test
