// The simulator on a few steps made by hand: what waits for what, and for how long.
#include "proof/simulate.h"
#include "proof/uniform.h"
#include "support/catch.h"

using namespace tutti;
using namespace tutti::sim;

namespace {

// A hand-made call: every step moves a kilobyte.
SimulationRequest by_hand(std::vector<Schedule> schedules, uint32_t tiles = 1) {
    SimulationRequest request;
    request.ranks = static_cast<Rank>(schedules.size());
    request.network = uniform(request.ranks);
    request.data.tiles = tiles;
    request.data.elements = [](const Schedule&, const Step&, uint32_t) { return 1000; };
    request.schedule = [schedules = std::move(schedules)](Rank rank) {
        return schedules[static_cast<std::size_t>(rank)];
    };
    return request;
}

Schedule one_lane(Lane steps) {
    Schedule s;
    s.lanes.push_back(std::move(steps));
    return s;
}

Step send_to(Rank peer) {
    return {.local = Region::input(0), .send = peer};
}

Step receive_from(Rank peer) {
    return {.recv = peer, .out = Region::output(0)};
}

}  // namespace

TEST_CASE("simulate: a second credit keeps a link busy over its latency") {
    std::vector<Schedule> pair{one_lane({send_to(1)}), one_lane({receive_from(0)})};
    SimulationRequest request = by_hand(pair, 100);
    request.network.credits = 1;
    const auto slow = simulate(request);
    request.network.credits = 100;
    const auto fast = simulate(request);
    REQUIRE(slow);
    REQUIRE(fast);
    // One at a time: there, and the credit's way back.
    REQUIRE(microseconds(slow->time) == Approx(100 * hop_us(1000) + 99 * latency_us));
    REQUIRE(microseconds(fast->time) ==
            Approx(hop_us(1000) + 99 * 1000 * us_per_byte).epsilon(0.02));
}

TEST_CASE("simulate: a step waits for the other lane's step that it comes after") {
    Schedule waits;
    waits.lanes.push_back({receive_from(1)});
    Step late = send_to(1);
    late.after = {0, 0};
    waits.lanes.push_back({late});
    Schedule other;
    other.lanes.push_back({send_to(0)});
    other.lanes.push_back({receive_from(0)});
    const auto r = simulate(by_hand({waits, other}));
    REQUIRE(r);
    REQUIRE(microseconds(r->time) == Approx(2 * hop_us(1000)));
}

TEST_CASE("simulate: a message that is kept is there for the next step, and received once") {
    Step look = receive_from(1);
    look.keep = true;
    const auto r = simulate(by_hand({one_lane({look, receive_from(1)}), one_lane({send_to(0)})}));
    REQUIRE(r);
    REQUIRE(r->ranks[0].messages_received == 1);
    REQUIRE(microseconds(r->time) == Approx(hop_us(1000)));
}

TEST_CASE("simulate: says who waits for whom where nothing can go on") {
    const auto r = simulate(by_hand({one_lane({receive_from(1)}), one_lane({receive_from(0)})}));
    REQUIRE_FALSE(r);
    REQUIRE(r.error().message ==
            "the schedule deadlocks with 8 credits: rank 0 lane 0 step 0 (tile 0) waits for a "
            "message of rank 1 forever");
}

TEST_CASE("simulate: refuses networks that make no sense") {
    const auto refuses = [](auto change) {
        SimulationRequest request = by_hand({one_lane({send_to(1)}), one_lane({receive_from(0)})});
        change(request.network);
        const auto r = simulate(request);
        return !r && r.error().code == Code::invalid;
    };
    REQUIRE(refuses([](Network& n) { n.hosts = 3; }));
    REQUIRE(refuses([](Network& n) { n.hosts = 0; }));
    REQUIRE(refuses([](Network& n) { n.switches = 3; }));
    REQUIRE(refuses([](Network& n) { n.oversubscription = 0.5; }));
    REQUIRE(refuses([](Network& n) { n.wire.bytes_per_s = 0; }));
    REQUIRE(refuses([](Network& n) { n.memory.latency_us = -1; }));
    REQUIRE(refuses([](Network& n) { n.credits = 0; }));
}
