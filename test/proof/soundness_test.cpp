// Tests that the verifier refuses wrong schedules and points at the step that is wrong.
#include <algorithm>
#include <functional>
#include <regex>

#include "collectives/catalog.h"
#include "proof/draw.h"
#include "proof/mentions.h"
#include "proof/verify.h"
#include "support/catch.h"
#include "support/sanitized.h"

using namespace tutti;
using test::mentions;

namespace {

using Make = std::function<Schedule(const ScheduleRequest&)>;

Verdict verdict_of(Rank ranks, const Make& make, Collective collective = Collective::allreduce,
                   uint32_t lanes = 1) {
    VerifyRequest request;
    request.collective = collective;
    request.ranks = ranks;
    return verify(request, make, lanes);
}

/// The algorithm with one step of one rank changed.
Make changed(const Algorithm& a, Rank victim, std::size_t step,
             const std::function<void(Lane&, std::size_t)>& change) {
    return [=, &a](const ScheduleRequest& r) {
        Schedule schedule = a.make(r);
        if (r.rank == victim) change(schedule.lanes[0], step);
        return schedule;
    };
}

/// Three ranks: lane 0 gathers into rank 0, lane 1 spreads the result once lane 0 has it.
Schedule star(const ScheduleRequest& r) {
    const Region in = Region::input(0), out = Region::output(0);
    const Step take{.recv = 0, .out = out, .in = Form::final, .result = Form::final};
    const Step give{.local = out, .local_form = Form::final, .result = Form::final};
    Schedule s;
    s.scratch_slots = 1;
    s.lanes.resize(2);
    if (r.rank != 0) {
        s.lanes[0].push_back({.local = in, .send = 0});
        s.lanes[1].push_back(take);
        return s;
    }
    s.lanes[0].push_back(
        {.recv = 1, .local = in, .out = Region::scratch(0, 0), .result = Form::partial});
    s.lanes[0].push_back({.recv = 2,
                          .local = Region::scratch(0, 0),
                          .out = out,
                          .local_form = Form::partial,
                          .result = Form::final});
    for (Rank to : {1, 2}) {
        s.lanes[1].push_back(give);
        s.lanes[1].back().send = to;
        s.lanes[1].back().after = {0, 1};
    }
    return s;
}

}  // namespace

TEST_CASE("verify: a schedule that does nothing is not right") {
    const auto without = [](uint32_t chunks, std::size_t lanes) {
        return [=](const ScheduleRequest&) {
            Schedule s;
            s.chunks = chunks;
            s.lanes.resize(lanes);
            return s;
        };
    };
    REQUIRE(mentions(verdict_of(2, without(1, 0)), "rank 0 has 0 lanes"));
    REQUIRE(mentions(verdict_of(2, without(0, 1)), "0 chunks"));
    REQUIRE(mentions(verdict_of(2, without(1, 1)), "no step stores output[0]"));
}

TEST_CASE("verify: refuses extents that are empty or wrap around") {
    const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
    const auto with = [&](Step bad) {
        return verdict_of(
            2, changed(ring, 1, 0, [bad](Lane& lane, std::size_t) { lane.push_back(bad); }));
    };
    Step bad{.local = Region::input(0), .out = Region::scratch(0, 0), .chunks = 0};
    REQUIRE(mentions(with(bad), "rank 1 lane 0 step 3 (tile 0): moves 0 chunks"));
    bad = {.local = Region::input(~0u), .out = Region::output(~0u)};
    REQUIRE(mentions(with(bad), "rank 1 lane 0 step 3 (tile 0): is outside the tile"));
    bad = {.local = Region::input(1), .out = Region::output(1), .chunks = ~0u};
    REQUIRE(mentions(with(bad), "rank 1 lane 0 step 3 (tile 0): is outside the tile"));
}

TEST_CASE("verify: a broadcast's input is the root's alone") {
    const auto make = [](const ScheduleRequest& r) {
        const Region in = Region::input(0), out = Region::output(0);
        Schedule s;
        if (r.rank == 0)
            s.lanes.push_back({{.recv = 1, .out = out}, {.local = in, .send = 1}});
        else
            s.lanes.push_back({{.local = in, .send = 0}, {.recv = 0, .out = out}});
        return s;
    };
    const Verdict v = verdict_of(2, make, Collective::broadcast);
    REQUIRE_FALSE(v.ok);
    REQUIRE(
        mentions(v, "rank 1 lane 0 step 0 (tile 0): uses chunk 0, which its input does not have"));
}

TEST_CASE("verify: names the step where a wrong value shows and whose part is wrong") {
    const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
    // Step 1 passes on what came from rank 2 without adding rank 0's own.
    const Verdict passed_on = verdict_of(3, changed(ring, 0, 1, [](Lane& lane, std::size_t s) {
                                             lane[s].out = Region::output(lane[s].local.chunk);
                                             lane[s].local = {};
                                             lane[s].result = lane[s].in;
                                         }));
    REQUIRE_FALSE(passed_on.ok);
    REQUIRE(mentions(passed_on, "rank 1 lane 0 step 2 (tile 0): expects partial, gets raw"));

    const Verdict twice = verdict_of(2, [](const ScheduleRequest& r) {
        Schedule s;
        s.scratch_slots = 1;
        const Rank peer = 1 - r.rank;
        const Region in = Region::input(0), slot = Region::scratch(0, 0);
        s.lanes.push_back({{.local = in, .send = peer},
                           {.recv = peer,
                            .local = in,
                            .out = slot,
                            .local_first = r.rank == 0,
                            .result = Form::partial},
                           {.local = in, .send = peer},
                           {.recv = peer,
                            .local = slot,
                            .out = Region::output(0),
                            .local_form = Form::partial,
                            .result = Form::final}});
        return s;
    });
    REQUIRE_FALSE(twice.ok);
    REQUIRE(mentions(twice, " lane 0 step 3 (tile 0): output[0] does not hold every rank's"));
    REQUIRE(std::regex_search(twice.problem, std::regex("rank [01]'s is there twice")));
}

TEST_CASE("verify: partial results travel only where messages are cut for them") {
    const Algorithm& ring = *find_algorithm(Collective::allreduce, "ring");
    const auto claims = [&](Rank liars) {
        return verdict_of(4, [&, liars](const ScheduleRequest& r) {
            Schedule s = ring.make(r);
            s.sends_partials = r.rank >= liars;
            return s;
        });
    };
    REQUIRE(claims(0).ok);
    REQUIRE(mentions(claims(1), "rank 0 lane 0 step 1 (tile 0): moves a partial result"));
    REQUIRE(mentions(claims(4), "rank 0 lane 0 step 1 (tile 0): moves a partial result"));
    const Verdict differ = verdict_of(2, [&](const ScheduleRequest& r) {
        Schedule s = ring.make(r);
        s.sends_partials = r.rank == 0;
        return s;
    });
    REQUIRE(mentions(differ, "rank 1 and rank 0 disagree on whether partial results are sent"));
    // With two ranks every sum has both contributions, so no step need send a partial one.
    const Verdict two = verdict_of(
        2, changed(ring, 0, 0, [](Lane& lane, std::size_t s) { lane[s].result = Form::partial; }));
    REQUIRE(mentions(two, "rank 0 lane 0 step 0 (tile 0): moves a partial result"));
}

TEST_CASE("verify: a step done twice is refused, and the text says where") {
    const std::regex place("rank \\d+ lane \\d+ step \\d+");
    for (const Algorithm& a : algorithms())
        for (Rank victim = 0; victim < 5; ++victim) {
            const Lane whole = a.make({5, victim, 0, 1}).lanes[0];
            for (std::size_t s = 0; s < whole.size(); ++s) {
                // Without a message it is a copy, and a copy made twice is a copy.
                const Step& step = whole[s];
                if (step.recv == nobody && step.send == nobody) continue;
                const Verdict v =
                    verdict_of(5,
                               changed(a, victim, s,
                                       [](Lane& lane, std::size_t at) {
                                           const Step copy = lane[at];
                                           lane.push_back(copy);
                                           std::rotate(lane.begin() + static_cast<ptrdiff_t>(at),
                                                       lane.end() - 1, lane.end());
                                       }),
                               a.collective);
                INFO(collective_name(a.collective)
                     << " " << a.name << " rank " << victim << " step " << s << ": " << v.problem);
                REQUIRE_FALSE(v.ok);
                REQUIRE(std::regex_search(v.problem, place));
            }
        }
}

TEST_CASE("verify: a deadlock says what each lane waits for, the one at fault first") {
    const Verdict circle = verdict_of(
        2,
        [](const ScheduleRequest& r) {
            Schedule s;
            const Step send{.local = Region::input(0), .send = 1 - r.rank};
            s.lanes = {{send}, {send}};
            s.lanes[0][0].after = {1, 0};
            s.lanes[1][0].after = {0, 0};
            return s;
        },
        Collective::allreduce, 2);
    REQUIRE(mentions(circle, "rank 0 lane 0 step 0 (tile 0) waits for its lane 1 step 0"));

    // Rank 2 of the chain no longer passes the message on.
    const Algorithm& chain = *find_algorithm(Collective::broadcast, "chain");
    const Verdict stuck = verdict_of(
        4, changed(chain, 2, 0, [](Lane& lane, std::size_t s) { lane[s].send = nobody; }),
        Collective::broadcast);
    REQUIRE(mentions(stuck,
                     "deadlock: rank 3 lane 0 step 0 (tile 0) waits for a message from rank "
                     "2, which has finished"));
}

TEST_CASE("verify: lanes joined by after are right with it and refused without") {
    const Verdict joined = verdict_of(3, star, Collective::allreduce, 2);
    INFO(joined.problem);
    REQUIRE(joined.ok);
    REQUIRE(joined.hops == 2);
    const Verdict apart = verdict_of(
        3,
        [](const ScheduleRequest& r) {
            Schedule s = star(r);
            if (r.rank == 0) s.lanes[1][0].after = {};
            return s;
        },
        Collective::allreduce, 2);
    REQUIRE_FALSE(apart.ok);
    REQUIRE(mentions(apart, "rank 0 lane 0 step 1 and lane 1 step 0 both use output[0]"));
}

TEST_CASE("verify: a message of another tile is refused") {
    // Two a tile, of which rank 1 keeps the second: the next tile would begin with that.
    const auto make = [](const ScheduleRequest& r) {
        Schedule s;
        const Step send{.local = Region::input(0), .send = 1};
        const Step take{.recv = 0, .out = Region::output(0)};
        Step look = take;
        look.keep = true;
        s.lanes.push_back(r.rank == 0 ? Lane{send, send} : Lane{take, look});
        return s;
    };
    const Verdict v = verdict_of(2, make, Collective::broadcast);
    REQUIRE_FALSE(v.ok);
    REQUIRE(
        mentions(v, "rank 1 lane 0 step 0 (tile 1): gets what rank 0 sent in step 1 of tile 0"));
}

TEST_CASE("verify: takes hundreds of ranks, and finds that two credits do") {
    // A thousand are among the proofs: test/collectives.
    const Rank ranks = test::sanitized ? 100 : 300;
    for (const Algorithm& a : algorithms()) {
        // n² blocks or channels: a third of the ranks will do there.
        const bool quadratic = traits_of(a.collective).cut == Cut::pairs || a.name == "direct";
        const Verdict v = verdict_of(quadratic ? ranks / 3 : ranks, a.make, a.collective);
        INFO(a.name << ": " << v.problem);
        REQUIRE(v.ok);
        REQUIRE(v.credits <= 2);
    }
}

TEST_CASE("draw: the SVG closes every tag it opens") {
    std::vector<Schedule> ranks;
    for (Rank r = 0; r < 5; ++r) ranks.push_back(ring_allreduce({5, r, 0, 2}));
    const std::string svg = draw_svg(ranks, "ring \"5\" <2 lanes>");
    const std::regex tag("<(/?)([a-z]+)((?:\\s+[a-zA-Z0-9:-]+=\"[^\"<>]*\")*)\\s*(/?)>");
    std::vector<std::string> open;
    std::size_t end = 0;
    for (std::sregex_iterator m(svg.begin(), svg.end(), tag), last; m != last; ++m) {
        const std::string between = svg.substr(end, static_cast<std::size_t>(m->position()) - end);
        REQUIRE(between.find_first_of("<>") == std::string::npos);
        end = static_cast<std::size_t>(m->position() + m->length());
        if ((*m)[1].length() > 0) {
            REQUIRE_FALSE(open.empty());
            REQUIRE(open.back() == (*m)[2].str());
            open.pop_back();
        } else if ((*m)[4].length() == 0) {
            open.push_back((*m)[2].str());
        }
    }
    REQUIRE(open.empty());
    REQUIRE(svg.substr(end) == "\n");
}
