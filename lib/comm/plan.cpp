#include "comm/plan.h"

#include "comm/plan_cache.h"

namespace tutti {
namespace {

constexpr std::size_t max_cached_plans = 256;

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

Plan* PlanCache::search(const Call& call) {
    for (auto& plan : plans_)
        if (!plan->busy && plan->call == call) return last_ = plan.get();
    return nullptr;
}

void PlanCache::make_room() {
    if (plans_.size() < max_cached_plans) return;
    last_ = nullptr;
    std::erase_if(plans_, [](auto& plan) { return !plan->busy; });
}

Plan* PlanCache::keep(std::unique_ptr<Plan> plan) {
    plans_.push_back(std::move(plan));
    return last_ = plans_.back().get();
}

}  // namespace tutti
