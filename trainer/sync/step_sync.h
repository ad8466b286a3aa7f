// All that the replicas exchange in a step, by what the options ask for.
#pragma once

#include <optional>

#include "trainer/model/settings.h"
#include "trainer/plan/model_memory.h"
#include "trainer/sync/averaging.h"
#include "trainer/sync/computed_sync.h"
#include "trainer/sync/gradient_reduction.h"
#include "trainer/sync/micro_sums.h"

namespace tutti::trainer {

/// A model that trains has one. It reduces gradients in each step, or (LocalSGD) averages deltas
/// every few steps, never both. Order of the calls: check, append, allocate, bind.
class StepSync {
public:
    StepSync(const TrainerSettings& settings, const ModelRecorder& recorder,
             const Replicas& replicas, ModelMemory& memory, TaskTable& tasks);

    /// INVALID for groups whose values the devices cannot add as the options ask for.
    Result<> check() const;
    /// Appends the sums of the gradients over micro-batches and replicas, and the synchronisation
    /// of computed parameters. The backward pass begins with node backward_begin.
    void append_before_update(StepPlan& plan, std::size_t backward_begin);
    void append_after_update(StepPlan& plan);
    /// The groups have their memory: allocates what the sums and averages need beside it.
    Result<> allocate();
    void bind();

    const GradientReduction& gradients() const { return gradients_; }
    ComputedSync& computed() { return computed_; }
    /// The parameters were synchronised.
    Result<> take_snapshot() { return averaging_ ? averaging_->take_snapshot() : Result<>(); }

private:
    Result<> check_addable(const char* option) const;

    const TrainerSettings& settings_;
    const ModelRecorder& recorder_;
    const Replicas& replicas_;
    ModelMemory& memory_;
    TaskTable& tasks_;
    GradientReduction gradients_;
    ComputedSync computed_;
    std::optional<MicroSums> micro_sums_;
    std::optional<Averaging> averaging_;
};

}  // namespace tutti::trainer
