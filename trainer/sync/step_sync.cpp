#include "trainer/sync/step_sync.h"

#include <algorithm>

#include "trainer/sync/sparse.h"

namespace tutti::trainer {

StepSync::StepSync(const TrainerSettings& settings, const ModelRecorder& recorder,
                   const Replicas& replicas, ModelMemory& memory, TaskTable& tasks)
    : settings_(settings),
      recorder_(recorder),
      replicas_(replicas),
      memory_(memory),
      tasks_(tasks),
      gradients_(memory.buckets(), tasks),
      computed_(memory.computed(), tasks) {
    if (settings.fixed_order && settings.micro_batches > 1)
        micro_sums_.emplace(memory.buckets(), replicas.devices, settings.micro_batches);
    if (!settings.synchronous()) averaging_.emplace(memory.parameters(), replicas.devices, tasks);
}

// The layer adds on devices; 16-bit types are added in float32.
Result<> StepSync::check_addable(const char* option) const {
    for (const BufferGroup& group : memory_.parameters()) {
        if (group.dtype == TUTTI_FLOAT32 || group.dtype == TUTTI_FLOAT64) continue;
        if (!is_narrow(group.dtype))
            return invalid("{} does not support parameters of {}", option,
                           tutti_dtype_name(group.dtype))
                .advice("use a dtype of 16 bits or more, or set {} to 0", option);
        if (!std::ranges::all_of(replicas_.devices, [](auto* d) { return d->can_convert(); }))
            return invalid("{} with parameters of {}: a device has no functions.convert", option,
                           tutti_dtype_name(group.dtype))
                .advice("set functions.convert of every device, or set {} to 0", option);
    }
    return {};
}

Result<> StepSync::check() const {
    if (settings_.fixed_order) TRAINER_TRY(check_addable("options.fixed_order"));
    if (settings_.synchronous()) return {};
    TRAINER_TRY(check_addable("options.local_steps"));
    for (int b : recorder_.of_kind(0, TUTTI_PARAMETER))
        if (recorder_.buffer(b).sparse())
            return invalid("options.local_steps does not support the sparse parameter '{}'",
                           recorder_.buffer(b).name)
                .advice("declare it without TUTTI_SPARSE, or set options.local_steps to 0");
    return {};
}

void StepSync::append_before_update(StepPlan& plan, std::size_t backward_begin) {
    const bool several = replicas_.count() > 1;
    if (several && settings_.synchronous()) gradients_.add_tasks();
    if (micro_sums_) {
        micro_sums_->append_stores(plan.micro);
        micro_sums_->append_sums(plan.last, !gradients_.is_active());
    }
    if (gradients_.is_active()) gradients_.insert_nodes(plan.last, backward_begin);
    append_sparse_sums(plan.last, tasks_, recorder_, replicas_);
    if (several) computed_.append_to(plan.last, settings_.computed_mean, settings_.computed_every);
}

void StepSync::append_after_update(StepPlan& plan) {
    if (averaging_) averaging_->append_to(plan.last, settings_.local_steps);
}

Result<> StepSync::allocate() {
    if (averaging_) TRAINER_TRY(averaging_->allocate());
    return micro_sums_ ? micro_sums_->allocate() : Result<>();
}

void StepSync::bind() {
    gradients_.bind(micro_sums_.has_value());
    computed_.bind();
    if (averaging_) averaging_->bind();
}

}  // namespace tutti::trainer
