// The program's function that is called for every finished operation.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

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

    /// Announces a later call().
    void expect() {
        const std::lock_guard lock(mutex_);
        ++expected_;
    }
    /// Catches the function's exceptions, because this thread has other operations to end.
    void call(std::shared_ptr<c10d::WorkInfo> info) {
        running_here.push_back(this);
        try {
            function_(std::move(info));
        } catch (const std::exception& error) {
            TORCH_WARN("tutti: the completion hook failed: ", error.what());
        }
        running_here.pop_back();
        const std::lock_guard lock(mutex_);
        if (expected_ > 0) --expected_;
        changed_.notify_all();
    }
    /// Waits until every announced call has returned. If the function itself calls it, it does not
    /// wait for the calls that wait here, on this thread and on others. False: the time-out passed.
    bool wait_until_called(std::chrono::milliseconds timeout) {
        const auto own =
            static_cast<std::size_t>(std::count(running_here.begin(), running_here.end(), this));
        std::unique_lock lock(mutex_);
        waiting_ += own;
        changed_.notify_all();
        const bool called =
            changed_.wait_for(lock, timeout, [&] { return expected_ <= (own > 0 ? waiting_ : 0); });
        waiting_ -= own;
        return called;
    }

private:
    // This thread's calls of hooks, one inside the other: a hook may call a group that has one.
    static inline thread_local std::vector<const CompletionHook*> running_here;

    const Function function_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t expected_ = 0;
    std::size_t waiting_ = 0;  // of the expected calls, the ones inside wait_until_called()
};

}  // namespace tutti_torch
