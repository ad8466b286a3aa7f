// Mutations: break a right schedule in every way a bug would, and the verifier must notice.
#include <functional>
#include <random>

#include "collectives/catalog.h"
#include "proof/verify.h"
#include "support/catch.h"
#include "support/layouts.h"

using namespace tutti;

namespace {

using Mutation = std::function<bool(Step& step)>;  // false: does not apply to this step

/// Applies the mutation to each step in turn (one at a time) of one rank; every mutant that differs
/// must be refused, in place or out of place. Returns how many there were.
int expect_caught(const Algorithm& a, Rank ranks, const char* what, const Mutation& mutate) {
    int mutants = 0;
    VerifyRequest request;
    request.collective = a.collective;
    request.ranks = ranks;
    request.max_credits = 4;
    const Hosts hosts = test::mixed_hosts(ranks);
    request.hosts = &hosts;
    for (Rank victim = 0; victim < ranks; ++victim) {
        const Schedule whole = a.make({ranks, victim, 0, 1, &hosts});
        for (std::size_t l = 0; l < whole.lanes.size(); ++l)
            for (std::size_t s = 0; s < whole.lanes[l].size(); ++s) {
                Step changed = whole.lanes[l][s];
                if (!mutate(changed) || changed == whole.lanes[l][s]) continue;
                ++mutants;
                const auto mutant = [&](const ScheduleRequest& r) {
                    Schedule schedule = a.make(r);
                    if (r.rank == victim) schedule.lanes[l][s] = changed;
                    return schedule;
                };
                request.in_place = false;
                Verdict v = verify(request, mutant, 1);
                request.in_place = true;
                if (v.ok) v = verify(request, mutant, 1);
                INFO(what << ": " << collective_name(a.collective) << " " << a.name << " ranks "
                          << ranks << " rank " << victim << " lane " << l << " step " << s);
                REQUIRE_FALSE(v.ok);
                REQUIRE(v.problem.find("rank ") != std::string::npos);
            }
    }
    return mutants;
}

int everywhere(const char* what, const Mutation& mutate,
               const std::function<bool(const Algorithm&)>& where = {}) {
    int mutants = 0;
    for (const Algorithm& a : algorithms())
        for (Rank ranks : {2, 3, 4, 5, 8})
            if (!where || where(a)) mutants += expect_caught(a, ranks, what, mutate);
    return mutants;
}

bool reduces(const Algorithm& a) {
    return traits_of(a.collective).reduces;
}

}  // namespace

TEST_CASE("mutation: a step that reads or writes the wrong chunk is caught") {
    const int mutants = everywhere(
        "wrong local chunk",
        [](Step& step) {
            if (!step.local) return false;
            step.local.chunk ^= 1;
            return true;
        },
        [](const Algorithm& a) { return a.name == "ring"; });
    REQUIRE(mutants > 20);
    REQUIRE(everywhere("wrong out chunk", [](Step& step) {
                if (!step.out) return false;
                step.out.chunk ^= 1;
                return true;
            }) > 20);
}

TEST_CASE("mutation: a dropped store, send or receive is caught") {
    REQUIRE(everywhere("no store", [](Step& step) {
                if (!step.out || !(step.local || step.send != nobody)) return false;
                step.out = {};
                return true;
            }) > 10);
    REQUIRE(everywhere("no send", [](Step& step) {
                if (step.send == nobody) return false;
                step.send = nobody;
                return true;
            }) > 40);
    REQUIRE(everywhere("no receive", [](Step& step) {
                if (step.recv == nobody) return false;
                step.recv = nobody;
                return true;
            }) > 40);
}

TEST_CASE("mutation: a contribution that is left out is caught") {
    REQUIRE(everywhere(
                "no local operand",
                [](Step& step) {
                    if (!step.reduces()) return false;
                    if (!step.out) step.out = step.local;  // keeps the size
                    step.local = {};
                    return true;
                },
                reduces) > 20);
}

TEST_CASE("mutation: a message to or from the wrong peer is caught") {
    REQUIRE(everywhere("wrong destination", [](Step& step) {
                if (step.send == nobody) return false;
                step.send += 1;
                return true;
            }) > 40);
    REQUIRE(everywhere("wrong source", [](Step& step) {
                if (step.recv == nobody) return false;
                step.recv += 1;
                return true;
            }) > 40);
}

TEST_CASE("mutation: a wrong form is caught wherever it is") {
    const auto next = [](Form form) {
        return form == Form::raw ? Form::partial : form == Form::partial ? Form::final : Form::raw;
    };
    REQUIRE(everywhere("wrong result form", [&](Step& step) {
                step.result = next(step.result);
                return true;
            }) > 60);
    REQUIRE(everywhere("wrong arriving form", [&](Step& step) {
                if (step.recv == nobody) return false;
                step.in = next(step.in);
                return true;
            }) > 40);
    REQUIRE(everywhere("wrong local form", [&](Step& step) {
                if (!step.local) return false;
                step.local_form = next(step.local_form);
                return true;
            }) > 40);
}

TEST_CASE("mutation: a wrong operand order in an exchange is caught") {
    // With a power of two every reduction is one half of an exchange; elsewhere the first one is
    // not, and its order is the only one there is.
    const Algorithm& doubling = *find_algorithm(Collective::allreduce, "recursive_doubling");
    int mutants = 0;
    for (Rank ranks : {2, 4, 8, 16})
        mutants += expect_caught(doubling, ranks, "operand order", [](Step& step) {
            if (!step.reduces()) return false;
            step.local_first = !step.local_first;
            return true;
        });
    REQUIRE(mutants == 2 * 1 + 4 * 2 + 8 * 3 + 16 * 4);
}

TEST_CASE("mutation: a dropped step is caught") {
    VerifyRequest request;
    request.max_credits = 4;
    for (const Algorithm& a : algorithms()) {
        request.collective = a.collective;
        request.ranks = 5;
        const Hosts hosts = test::mixed_hosts(request.ranks);
        request.hosts = &hosts;
        for (Rank victim = 0; victim < request.ranks; ++victim) {
            const std::size_t steps = a.make({5, victim, 0, 1, &hosts}).lanes[0].size();
            for (std::size_t s = 0; s < steps; ++s) {
                INFO(a.name << " rank " << victim << " step " << s);
                REQUIRE_FALSE(verify(
                                  request,
                                  [&](const ScheduleRequest& r) {
                                      Schedule schedule = a.make(r);
                                      if (r.rank == victim)
                                          schedule.lanes[0].erase(schedule.lanes[0].begin() +
                                                                  static_cast<ptrdiff_t>(s));
                                      return schedule;
                                  },
                                  1)
                                  .ok);
            }
        }
    }
}

TEST_CASE("mutation: two neighbouring steps in the wrong order are caught") {
    VerifyRequest request;
    request.ranks = 4;
    request.max_credits = 4;
    for (Rank victim = 0; victim < 4; ++victim) {
        const std::size_t steps = ring_allreduce({4, victim, 0, 1}).lanes[0].size();
        for (std::size_t s = 0; s + 1 < steps; ++s) {
            INFO("rank " << victim << " steps " << s << " and " << s + 1);
            REQUIRE_FALSE(verify(
                              request,
                              [&](const ScheduleRequest& r) {
                                  Schedule schedule = ring_allreduce(r);
                                  if (r.rank == victim)
                                      std::swap(schedule.lanes[0][s], schedule.lanes[0][s + 1]);
                                  return schedule;
                              },
                              1)
                              .ok);
        }
    }
}

TEST_CASE("mutation: scratch used by two rounds at once is caught") {
    // Recursive doubling alternates two slots a lane; folding two lanes onto the same slots breaks
    // it.
    VerifyRequest request;
    request.ranks = 8;
    const Verdict v = verify(
        request,
        [](const ScheduleRequest& r) {
            Schedule schedule = recursive_doubling_allreduce(r);
            for (Lane& lane : schedule.lanes)
                for (Step& step : lane)
                    for (Region* region : {&step.local, &step.out})
                        if (region->space == Space::scratch) region->slot %= 2;
            return schedule;
        },
        2);
    REQUIRE_FALSE(v.ok);
    REQUIRE(v.problem.find("both use scratch[") != std::string::npos);
}
