// The cache of one stream's plans, for calls that repeat.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"
#include "reduce/operators.h"

namespace tutti {

/// For the issuing thread only.
class PlanCache {
public:
    /// nullptr: no plan fits the call, or all that fit are running, or the call's operator is gone.
    Plan* find(const Call& call) {
        const auto fits = [&](const Plan& plan) { return !plan.busy && plan.call == call; };
        // Most calls repeat the one before.
        if (last_ && fits(*last_)) return last_;
        for (auto& plan : plans_)
            if (fits(*plan) && !is_of_destroyed_operator(*plan)) return remember(*plan);
        return nullptr;
    }
    /// If there are too many plans, evicts some that are not running. The new plan must be bound
    /// before: evicted plans may be the last owners of the work memory that it shares.
    Plan* keep(std::unique_ptr<Plan> plan);
    /// Evicts the plans whose path satisfies `which`; none of them is running.
    template <typename Which>
    void drop(Which which) {
        last_ = nullptr;
        std::erase_if(plans_, [&](const auto& plan) { return which(plan->call.path); });
    }

private:
    static constexpr std::size_t max_plans = 256;

    static bool is_of_destroyed_operator(const Plan& plan);
    /// Does not remember a plan with a user operator: find() must check each time that the operator
    /// exists.
    Plan* remember(Plan& plan) { return is_user_op(plan.call.op) ? &plan : (last_ = &plan); }
    void make_room();

    Plan* last_ = nullptr;
    std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace tutti
