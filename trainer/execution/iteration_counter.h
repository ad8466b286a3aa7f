// The number of training steps that a model has done.
#pragma once

#include <string>

#include "trainer/model/recorder.h"
#include "trainer/sync/replicas.h"

namespace tutti::trainer {

/// All buffers that count steps, on every device and in every scope, have the counter's value
/// between steps.
class IterationCounter {
public:
    IterationCounter(const ModelRecorder& recorder, const Replicas& replicas)
        : recorder_(recorder), replicas_(replicas) {}

    int64_t value() const { return value_; }
    /// A step was trained.
    Result<> advance();
    /// Takes the counter's value from that buffer of device 0, after it was restored or written.
    Result<> load(const std::string& buffer);

private:
    Result<> store() const;

    const ModelRecorder& recorder_;
    const Replicas& replicas_;
    int64_t value_ = 0;
};

}  // namespace tutti::trainer
