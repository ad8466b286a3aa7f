// A model's steps, one at a time.
#pragma once

#include <memory>
#include <optional>

#include "trainer/execution/executors.h"
#include "trainer/execution/gradient_stream.h"
#include "trainer/execution/iteration_counter.h"
#include "trainer/execution/loss_recovery.h"
#include "trainer/execution/readiness.h"
#include "trainer/model/settings.h"
#include "trainer/sync/step_sync.h"

namespace tutti::trainer {

/// A step completes and is counted, or it fails and ends the trainer. With a recovery, a step that
/// fails by a loss is repeated with the ranks left. With external autograd a step is begin, ready
/// for each gradient, and finish; else it is run.
class Steps {
public:
    Steps(const TrainerSettings& settings, const ModelRecorder& recorder, const Replicas& replicas,
          Engine& engine, Readiness& readiness)
        : settings_(settings),
          recorder_(recorder),
          replicas_(replicas),
          engine_(engine),
          readiness_(readiness),
          iteration_(recorder, replicas) {}

    /// Takes over the programs; their tasks have their memory. sync: NULL if the model does not
    /// train.
    void start(StepPlan plan, StepSync* sync);

    /// Returns the samples of all replicas; 0 if options.uneven is not set.
    Result<int64_t> run(const int64_t* samples);
    Result<> begin();
    Result<> ready(int device, const std::string& parameter);
    Result<> finish();

    /// From now on, losses are recovered from. Further calls replace the options only.
    Result<> enable_recovery(const tutti_trainer_recovery& options, ModelMemory& memory,
                             Replicas& replicas, StateBroadcast& broadcast);
    void disable_recovery() { recovery_.reset(); }
    /// NULL if losses end the trainer.
    LossRecovery* recovery() { return recovery_ ? &*recovery_ : nullptr; }
    const LossRecovery* recovery() const { return recovery_ ? &*recovery_ : nullptr; }
    /// Regroups the ranks after a loss, or ends the trainer. In a step, the state is the one of the
    /// step's begin, or of its end if another rank had finished the step.
    Result<AfterLoss> recover_from(const Error& cause, bool between_steps);
    /// The error of a call that the program must repeat with the ranks left.
    Error error_to_repeat(const Error& cause, const AfterLoss& after, const char* repeat) const;
    /// A rank that joins a training has its state from its first synchronisation on.
    void set_has_state(bool has_state) { has_state_ = has_state; }
    /// The ranks count their steps anew, because new ranks have done none.
    void restart_count() { finished_ = 0; }
    bool has_begun() const { return stream_ && stream_->in_step(); }

    int64_t completed() const { return completed_; }
    IterationCounter& iteration() { return iteration_; }

private:
    Result<> try_step(RunContext& context);
    Result<> run_micro_batches(RunContext& context);
    Result<> count_step(int64_t total);
    Result<bool> resize(int64_t* samples);

    const TrainerSettings& settings_;
    const ModelRecorder& recorder_;
    const Replicas& replicas_;
    Engine& engine_;
    StepSync* sync_ = nullptr;
    Readiness& readiness_;
    IterationCounter iteration_;
    StepPlan plan_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<GradientStream> stream_;  // NULL without external autograd
    std::optional<LossRecovery> recovery_;
    int64_t completed_ = 0;
    int64_t finished_ = 0;    // completed, or without samples on all ranks
    int64_t last_total_ = 0;  // samples of the last finished step
    bool has_state_ = true;
};

}  // namespace tutti::trainer
