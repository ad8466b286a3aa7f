// Buckets of a framework with its own autograd: told parameter by parameter, reduced in order.
#pragma once

#include <atomic>
#include <mutex>

#include "trainer/execution/engine.h"

namespace tutti::trainer {

class GradientStream {
public:
    /// buckets: a program of nothing but the buckets' collectives, in their order. members: by
    /// bucket, the gradients of all devices.
    GradientStream(Engine& engine, Program buckets, std::vector<std::vector<int>> members,
                   std::size_t all_buffers, int max_in_flight);

    /// What is under way ends before its memory goes.
    ~GradientStream();
    GradientStream(const GradientStream&) = delete;

    void begin(const RunContext& context);
    bool in_step() const { return in_step_; }
    /// From any thread. INVALID if it was told before. After a failure the same one, until finish.
    Result<> ready(int gradient, const std::string& name);
    /// Those that nobody told of count as they are; waits for all.
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
    Result<> outcome_;                  // of what was issued in this step
    std::vector<bool> ready_;           // by buffer
    std::vector<int> bucket_of_;        // by buffer
    std::vector<std::size_t> missing_;  // by bucket
    std::size_t next_ = 0;
    std::deque<PendingCollective> pending_;
};

}  // namespace tutti::trainer
