// The verifier on small schedules made by hand: what it accepts and what it has to say.
#include "schedule/conflicts.h"
#include "schedule/verify.h"
#include "support/catch.h"

using namespace tutti;

namespace {

constexpr Rank two = 2;

VerifyRequest request_of(Rank ranks, Collective collective = Collective::allreduce) {
    VerifyRequest request;
    request.collective = collective;
    request.ranks = ranks;
    return request;
}

bool mentions(const Verdict& verdict, const std::string& text) {
    return verdict.problem.find(text) != std::string::npos;
}

/// The smallest allreduce of two: exchange, add in rank order.
Schedule exchange(const ScheduleRequest& r) {
    const Rank peer = 1 - r.rank;
    Schedule s;
    s.lanes.push_back({{.local = Region::input(0), .send = peer},
                       {.recv = peer,
                        .local = Region::input(0),
                        .out = Region::output(0),
                        .local_first = r.rank == 0,
                        .result = Form::final}});
    return s;
}

}  // namespace

TEST_CASE("verify: accepts an exchange of two and counts it") {
    const Verdict v = verify(request_of(two), exchange, 1);
    INFO(v.problem);
    REQUIRE(v.ok);
    REQUIRE(v.credits == 1);
    REQUIRE(v.messages == 2);
    REQUIRE(v.hops == 1);
}

TEST_CASE("verify: refuses sums that two ranks add in different orders") {
    const Verdict v = verify(
        request_of(two),
        [](const ScheduleRequest& r) {
            Schedule s = exchange(r);
            s.lanes[0][1].local_first = true;
            return s;
        },
        1);
    REQUIRE_FALSE(v.ok);
    REQUIRE(mentions(v, "another order"));
}

TEST_CASE("verify: tells how many credits a schedule needs") {
    // Three messages before the first receive: fewer credits would stop both ranks.
    const auto three_first = [](const ScheduleRequest& r) {
        Schedule s;
        s.chunks = 3;
        Lane lane;
        for (uint32_t c = 0; c < 3; ++c)
            lane.push_back({.local = Region::input(c), .send = 1 - r.rank});
        for (uint32_t c = 0; c < 3; ++c)
            lane.push_back({.recv = 1 - r.rank,
                            .local = Region::input(c),
                            .out = Region::output(c),
                            .local_first = r.rank == 0,
                            .result = Form::final});
        s.lanes.push_back(lane);
        return s;
    };
    const Verdict v = verify(request_of(two), three_first, 1);
    INFO(v.problem);
    REQUIRE(v.ok);
    REQUIRE(v.credits == 3);
    VerifyRequest tight = request_of(two);
    tight.max_credits = 2;
    const Verdict stuck = verify(tight, three_first, 1);
    REQUIRE_FALSE(stuck.ok);
    REQUIRE(mentions(stuck, "deadlock"));
    REQUIRE(mentions(stuck, "waits for a credit of rank"));
}

TEST_CASE("verify: two ranks that both wait first are a deadlock that names them") {
    const Verdict v = verify(
        request_of(two),
        [](const ScheduleRequest& r) {
            Schedule s = exchange(r);
            std::swap(s.lanes[0][0], s.lanes[0][1]);
            return s;
        },
        1);
    REQUIRE_FALSE(v.ok);
    REQUIRE(mentions(v, "deadlock: rank 0 lane 0 step 0 (tile 0) waits for a message from rank 1"));
    REQUIRE(mentions(v, "rank 1 lane 0 step 0"));
}

TEST_CASE("verify: finds what goes wrong only in place") {
    // Stores the peer's value over the input before it sends its own.
    const auto greedy = [](const ScheduleRequest& r) {
        Schedule s;
        s.scratch_slots = 1;
        const Rank peer = 1 - r.rank;
        if (r.rank == 0) {
            s.lanes.push_back({{.local = Region::input(0), .send = peer},
                               {.recv = peer,
                                .out = Region::output(0),
                                .in = Form::final,
                                .result = Form::final}});
        } else {
            s.lanes.push_back({{.recv = peer, .out = Region::output(0)},
                               {.local = Region::output(0), .out = Region::scratch(0, 0)},
                               {.local = Region::input(0), .send = peer}});
        }
        return s;
    };
    VerifyRequest request = request_of(two);
    request.in_place = true;
    const Verdict v = verify(request, greedy, 1);
    REQUIRE_FALSE(v.ok);
}

TEST_CASE("verify: a message nobody receives is an error") {
    const Verdict v = verify(
        request_of(two),
        [](const ScheduleRequest& r) {
            Schedule s = exchange(r);
            if (r.rank == 0)
                s.lanes[0].push_back({.local = Region::output(0),
                                      .send = 1,
                                      .local_form = Form::final,
                                      .result = Form::final});
            return s;
        },
        1);
    REQUIRE_FALSE(v.ok);
    REQUIRE((mentions(v, "never receives") || mentions(v, "gets final")));
}

TEST_CASE("verify: refuses steps without a size, a value, or within themselves") {
    const auto with = [](Step bad) {
        return verify(
            request_of(two),
            [bad](const ScheduleRequest& r) {
                Schedule s = exchange(r);
                if (r.rank == 1) s.lanes[0].push_back(bad);
                return s;
            },
            1);
    };
    REQUIRE(mentions(with({.recv = 0}), "rank 1 lane 0 step 2 (tile 0): has no local and no out"));
    REQUIRE(mentions(with({.out = Region::output(0)}), "has no value"));
    REQUIRE(mentions(with({.local = Region::input(0), .send = 1}), "1 is no peer"));
    REQUIRE(mentions(with({.local = Region::input(0), .send = 7}), "7 is no peer"));
    REQUIRE(mentions(with({.local = Region::input(9), .send = 0}), "outside the tile"));
    REQUIRE(mentions(with({.local = Region::input(0), .out = Region::input(0)}),
                     "overwrites the input"));
    REQUIRE(mentions(with({.local = Region::input(0), .out = Region::scratch(3, 0)}),
                     "outside the tile"));
}

TEST_CASE("verify: lanes that share memory need an order") {
    // Lane 1 reads what lane 0 writes.
    Schedule s;
    s.scratch_slots = 1;
    s.lanes.push_back(
        {{.local = Region::input(0), .out = Region::scratch(0, 0)},
         {.local = Region::input(0), .out = Region::output(0), .result = Form::final}});
    s.lanes.push_back({{.local = Region::scratch(0, 0), .send = 1}});
    const std::string problem =
        find_conflict(s, Places(Collective::allreduce, two, 0, s.chunks), false);
    REQUIRE(problem.find("lane 0 step 0 and lane 1 step 0 both use scratch[0]") !=
            std::string::npos);

    s.lanes[1][0].after = {0, 0};
    // Ordered within the tile, but the next tile's write does not wait for this tile's send.
    REQUIRE_FALSE(find_conflict(s, Places(Collective::allreduce, two, 0, s.chunks), false).empty());
}

TEST_CASE("verify: output chunks of two lanes may be handed over with after") {
    Schedule s;
    s.lanes.push_back({{.recv = 1, .out = Region::output(0)}});
    s.lanes.push_back({{.local = Region::output(0), .send = 1}});
    REQUIRE_FALSE(find_conflict(s, Places(Collective::allreduce, two, 0, s.chunks), true).empty());
    s.lanes[1][0].after = {0, 0};
    REQUIRE(find_conflict(s, Places(Collective::allreduce, two, 0, s.chunks), true).empty());
}
