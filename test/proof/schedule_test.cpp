// The verifier on small schedules made by hand: what it accepts and what it has to say.
#include "proof/conflicts.h"
#include "proof/mentions.h"
#include "proof/symbolic_channels.h"
#include "proof/values.h"
#include "proof/verify.h"
#include "support/catch.h"

using namespace tutti;
using test::mentions;

namespace {

constexpr Rank two = 2;

VerifyRequest request_of(Rank ranks, Collective collective = Collective::allreduce) {
    VerifyRequest request;
    request.collective = collective;
    request.ranks = ranks;
    return request;
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
    REQUIRE(
        mentions(v, "rank 1 lane 0 step 1 (tile 1): gets what rank 0 sent in step 2 of tile 0"));
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
    REQUIRE(
        mentions(with({.recv = 0}), "rank 1 lane 0 step 2 (tile 0): has neither local nor out"));
    REQUIRE(mentions(with({.out = Region::output(0)}), "neither receives nor reads local"));
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

TEST_CASE("values: what was computed alike is one word, and nothing else is") {
    using symbolic::Value, symbolic::Values;
    Values values;
    const Value a = Value::input(0, 7), b = Value::input(1, 7), c = Value::input(2, 7);
    const Value ab = values.combine(a, b, Form::partial);
    REQUIRE(values.combine(a, b, Form::partial) == ab);
    REQUIRE_FALSE(values.combine(b, a, Form::partial) == ab);
    REQUIRE_FALSE(values.combine(a, b, Form::final) == ab);
    REQUIRE_FALSE(values.convert(ab, Form::final) == values.combine(a, b, Form::final));
    REQUIRE(values.convert(ab, Form::partial) == ab);
    // Widening changes no bit.
    const Value wide = values.convert(a, Form::partial);
    REQUIRE(wide.form() == Form::partial);
    REQUIRE(values.combine(wide, b, Form::partial) == ab);
    // Other brackets: the same contributions in the same order, but other bits.
    const Value left = values.combine(ab, c, Form::final);
    const Value right = values.combine(a, values.combine(b, c, Form::partial), Form::final);
    REQUIRE_FALSE(left == right);
    REQUIRE(values.content(left).from == values.content(right).from);
    REQUIRE(values.content(left).order == values.content(right).order);
    REQUIRE_FALSE(Value().defined());
}

TEST_CASE("values: a barrier's know of whose arrival they were told") {
    using symbolic::Value, symbolic::Values;
    Values values(100);
    const Value pair = values.combine(Value::input(3, 0), Value::input(70, 0), Form::raw);
    const Value triple = values.combine(pair, Value::input(99, 0), Form::raw);
    for (Rank rank = 0; rank < 100; ++rank) {
        REQUIRE(values.knows(pair, rank) == (rank == 3 || rank == 70));
        REQUIRE(values.knows(triple, rank) == (rank == 3 || rank == 70 || rank == 99));
    }
}

TEST_CASE("symbolic: channels are queues of their own in one pool") {
    SymbolicChannels queues;
    queues.reset(3);
    for (uint32_t i = 0; i < 40; ++i) {
        SymbolicChannels::SymbolicMessage& m = queues.push(1 + i % 2, 1 + i % 3);
        m.step = i;
        for (symbolic::Value& v : m.values()) v = symbolic::Value::input(0, i);
        if (i < 10) continue;  // five stay in each
        const uint32_t channel = 1 + i % 2;
        REQUIRE(queues.waiting(channel) == 6);
        SymbolicChannels::SymbolicMessage& first = queues.front(channel);
        REQUIRE(first.step == i - 10);
        REQUIRE(first.values().size() == 1 + (i - 10) % 3);
        REQUIRE(first.values().back() == symbolic::Value::input(0, i - 10));
        queues.pop(channel);
    }
    REQUIRE(queues.waiting(SymbolicChannels::silent) == 0);
}
