// Buckets of a framework with its own autograd, which reports each gradient when it is ready. The
// buckets are reduced in their order.
#pragma once

#include <atomic>
#include <mutex>

#include "trainer/execution/engine.h"

namespace tutti::trainer {

class GradientStream {
public:
    /// buckets: a program with only the buckets' collectives, in their order. members: by bucket,
    /// the gradients of all devices.
    GradientStream(Engine& engine, Program buckets, std::vector<std::vector<int>> members,
                   std::size_t all_buffers, int max_in_flight);

    /// Aborts and waits for the collectives in flight before their memory is freed.
    ~GradientStream();
    GradientStream(const GradientStream&) = delete;

    void begin(const RunContext& context);
    bool in_step() const { return in_step_; }
    /// The gradient has its value. From any thread. INVALID if it was reported before in this step.
    /// After a failure it returns that failure until finish.
    Result<> ready(int gradient, const std::string& name);
    /// Issues the remaining buckets, with the gradients as they are, and waits for all collectives.
    Result<> finish();

private:
    Result<> issue_ready(std::unique_lock<std::mutex>& lock);
    Result<> issue(std::size_t bucket);
    Result<> complete_oldest();
    void abort(Result<>& failure);

    Engine& engine_;
    Program program_;
    std::vector<std::vector<int>> members_;
    std::size_t max_in_flight_;
    RunContext context_;
    std::mutex mutex_;
    std::atomic<bool> in_step_{false};
    bool issuing_ = false;
    Result<> outcome_;                  // of this step's collectives
    std::vector<bool> ready_;           // by buffer
    std::vector<int> bucket_of_;        // by buffer
    std::vector<std::size_t> missing_;  // by bucket
    std::size_t next_ = 0;
    std::deque<PendingCollective> pending_;
};

}  // namespace tutti::trainer
