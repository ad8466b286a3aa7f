#include "plan/plan.h"

#include "plan/plan_cache.h"
#include "reduce/operators.h"

namespace tutti {
namespace {

constexpr std::size_t dropped_share = 8;  // evicts one idle plan in this many

}  // namespace

Plan::Plan(const Call& wanted, uint32_t on_stream)
    : call(wanted), algorithm(wanted.algorithm), stream(on_stream) {
    call.algorithm = algorithm;
    std::span<const std::size_t>* const lists[] = {&call.input.counts, &call.input.displacements,
                                                   &call.output.counts, &call.output.displacements};
    for (auto* list : lists) lengths.insert(lengths.end(), list->begin(), list->end());
    const std::size_t* at = lengths.data();
    for (auto* list : lists) {
        *list = {at, list->size()};
        at += list->size();
    }
    inputs.resize(static_cast<std::size_t>(call.inputs));
}

// Operator handles are never reused, so no valid call asks for such a plan again.
bool PlanCache::is_of_destroyed_operator(const Plan& plan) {
    return is_user_op(plan.call.op) && !find_operator(plan.call.op);
}

// Evicts plans spread over the whole cache. If a program cycles through more shapes than there is
// room for, the oldest plans, or all, would be the very ones that it needs next.
void PlanCache::make_room() {
    last_ = nullptr;
    std::erase_if(plans_,
                  [](auto& plan) { return !plan->busy && is_of_destroyed_operator(*plan); });
    if (plans_.size() < max_plans) return;
    std::size_t idle = 0;
    std::erase_if(plans_, [&](auto& plan) { return !plan->busy && idle++ % dropped_share == 0; });
}

Plan* PlanCache::keep(std::unique_ptr<Plan> plan) {
    make_room();
    plans_.push_back(std::move(plan));
    return remember(*plans_.back());
}

}  // namespace tutti
