// The plans that one stream's calls have needed, for the calls that repeat them.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"

namespace tutti {

/// The issuing thread's.
class PlanCache {
public:
    /// nullptr: there is none, or all of that shape are running.
    Plan* find(const Call& call) {
        // Most calls repeat the one before.
        if (last_ && !last_->busy && last_->call == call) return last_;
        return search(call);
    }
    /// Drops some of those that do not run when there are too many. Those that go lend the new one,
    /// which is bound, their work memory.
    Plan* keep(std::unique_ptr<Plan> plan);
    /// Those that `which` says; they do not run.
    template <typename Which>
    void drop(Which which) {
        last_ = nullptr;
        std::erase_if(plans_, [&](const auto& plan) { return which(plan->call.path); });
    }

private:
    static constexpr std::size_t max_plans = 256;

    Plan* search(const Call& call);
    void make_room();

    Plan* last_ = nullptr;
    std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace tutti
