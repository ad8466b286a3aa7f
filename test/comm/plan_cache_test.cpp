// The plans that a stream keeps for calls that repeat.
#include "plan/plan_cache.h"

#include "comm/job.h"
#include "reduce/operators.h"

using namespace comm_test;

namespace {

/// True if the call had to be bound.
bool bound(PlanCache& plans, const Call& call) {
    if (plans.find(call)) return false;
    plans.keep(std::make_unique<Plan>(call, 0));
    return true;
}

}  // namespace

TEST_CASE("plan cache: more shapes in turn than it holds still find half of their plans") {
    constexpr std::size_t shapes = 300, laps = 10;
    PlanCache plans;
    std::size_t misses = 0;
    for (std::size_t lap = 0; lap < laps; ++lap)
        for (std::size_t i = 1; i <= shapes; ++i) misses += bound(plans, sum_of(i));
    REQUIRE(misses >= shapes);
    REQUIRE(misses < shapes * laps / 2);
}

TEST_CASE("plan cache: plans that run stay, and a running one is not given out again") {
    PlanCache plans;
    Plan* running = plans.keep(std::make_unique<Plan>(sum_of(1), 0));
    running->busy = true;
    for (std::size_t i = 2; i < 3000; ++i) bound(plans, sum_of(i));
    REQUIRE(plans.find(sum_of(1)) == nullptr);
    running->busy = false;
    REQUIRE(plans.find(sum_of(1)) == running);
}

TEST_CASE("plan cache: a plan goes with its operator") {
    PlanCache plans;
    UserOperator added;
    added.kind = UserOperator::Kind::premul_sum;
    const Op op = add_operator(added);
    REQUIRE(bound(plans, sum_of(1, op)));
    REQUIRE_FALSE(bound(plans, sum_of(1, op)));
    REQUIRE(remove_operator(op));
    REQUIRE(bound(plans, sum_of(2)));
    REQUIRE(plans.find(sum_of(1, op)) == nullptr);
}
