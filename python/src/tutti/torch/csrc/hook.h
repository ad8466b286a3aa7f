// The program's function that hears of every operation that is over.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti_torch {

/// Shared, never copied: the function may own objects of Python's, and is called without its lock.
class CompletionHook {
public:
    using Function = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;

    explicit CompletionHook(Function function) : function_(std::move(function)) {}
    CompletionHook(const CompletionHook&) = delete;

    /// A call will come.
    void expect() {
        const std::lock_guard lock(mutex_);
        ++expected_;
    }
    /// What it throws ends here: the operation is over, and its thread has others to end.
    void call(std::shared_ptr<c10d::WorkInfo> info) {
        try {
            function_(std::move(info));
        } catch (const std::exception& error) {
            TORCH_WARN("tutti: the completion hook failed: ", error.what());
        }
        const std::lock_guard lock(mutex_);
        if (expected_ > 0) --expected_;
        changed_.notify_all();
    }
    /// False: the time was too short.
    bool wait_until_called(std::chrono::milliseconds timeout) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, timeout, [this] { return expected_ == 0; });
    }

private:
    const Function function_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t expected_ = 0;
};

}  // namespace tutti_torch
