// Adds the replicas' exchanges to a step's programs: gradients, computed parameters, or LocalSGD's
// deltas, by the trainer's options.
#pragma once

#include <optional>

#include "trainer/model/settings.h"
#include "trainer/plan/model_memory.h"
#include "trainer/sync/averaging.h"
#include "trainer/sync/computed_sync.h"
#include "trainer/sync/gradient_reduction.h"
#include "trainer/sync/micro_sums.h"

namespace tutti::trainer {

/// A trainer with an update builder has one. It reduces gradients in each step, or (LocalSGD)
/// averages the parameters' deltas every few steps, never both. Order of the calls: check,
/// append_before_update, append_after_update, allocate, bind.
class StepSync {
public:
    StepSync(const TrainerSettings& settings, const ModelRecorder& recorder,
             const Replicas& replicas, ModelMemory& memory, TaskTable& tasks);

    /// INVALID if options.fixed_order or options.local_steps is set, and a device cannot add a
    /// parameter's type.
    Result<> check() const;
    /// Appends the sums of the gradients over micro-batches and replicas, and the synchronisation
    /// of computed parameters (batch-norm statistics). The backward pass begins with node
    /// backward_begin.
    void append_before_update(StepPlan& plan, std::size_t backward_begin);
    /// Appends LocalSGD's averages of the parameters' deltas, if options.local_steps is set.
    void append_after_update(StepPlan& plan);
    /// Allocates further memory for micro-batch sums and averages, once the buckets and groups of
    /// parameters have theirs.
    Result<> allocate();
    /// Gives the tasks the addresses of their buffers, after allocate().
    void bind();

    const GradientReduction& gradients() const { return gradients_; }
    ComputedSync& computed() { return computed_; }
    /// With LocalSGD, copies the parameters, once all replicas have the same ones: the next deltas
    /// are relative to that copy.
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
