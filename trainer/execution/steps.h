// A model's steps, one at a time.
#pragma once

#include <memory>

#include "trainer/execution/executors.h"
#include "trainer/execution/gradient_stream.h"
#include "trainer/execution/iteration_counter.h"
#include "trainer/execution/readiness.h"
#include "trainer/model/settings.h"
#include "trainer/sync/step_sync.h"

namespace tutti::trainer {

/// A step completes and is counted, or it fails and ends the trainer. With external autograd a
/// step is begin, ready for each gradient, and finish; else it is run.
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

    int64_t completed() const { return completed_; }
    IterationCounter& iteration() { return iteration_; }

private:
    Result<> run_micro_batches(RunContext& context);

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
    int64_t completed_ = 0;
};

}  // namespace tutti::trainer
