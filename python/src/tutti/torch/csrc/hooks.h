// The functions that a program registers with a group, by number: torch 2.14 and newer have them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include "callbacks.h"

namespace tutti_torch {

/// Any thread. The table never calls, copies or destroys a function under its lock: each of these
/// takes the interpreter's lock if the function is Python's.
template <typename... Arguments>
class HookTable {
public:
    using Function = std::function<void(Arguments...)>;

    bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
    void add(int64_t id, Function function) {
        put(id, std::make_shared<const Function>(std::move(function)));
    }
    /// Another thread may still be inside the function, and leave it later.
    void remove(int64_t id) { put(id, nullptr); }
    /// Once the interpreter ends, this leaks the functions, as their end may need its lock.
    void clear() {
        Functions dropped;
        {
            const std::lock_guard lock(mutex_);
            dropped.swap(functions_);
            count_ = 0;
        }
        if (dropped.empty()) return;
        std::vector<Callback> last;
        last.emplace_back([held = std::move(dropped)] {});
        call_back(std::move(last));
    }
    /// Calls all of them, in the order of their numbers. Warns of their exceptions: this thread has
    /// an operation to end.
    void call(Arguments... arguments) const {
        for (const Held& function : all()) {
            try {
                (*function)(arguments...);
            } catch (const std::exception& error) {
                TORCH_WARN("tutti: a hook of the process group failed: ", error.what(),
                           ". What to do: correct the function that the program registered");
            }
        }
    }

private:
    using Held = std::shared_ptr<const Function>;
    using Functions = std::map<int64_t, Held>;

    // The parameter takes what the table had, and ends after the lock.
    void put(int64_t id, Held function) {
        const std::lock_guard lock(mutex_);
        if (function)
            functions_[id].swap(function);
        else if (auto found = functions_.extract(id))
            function.swap(found.mapped());
        count_ = functions_.size();
    }
    c10::SmallVector<Held, 2> all() const {
        const std::lock_guard lock(mutex_);
        c10::SmallVector<Held, 2> found;
        for (const auto& [id, function] : functions_) found.push_back(function);
        return found;
    }

    mutable std::mutex mutex_;
    Functions functions_;
    std::atomic<std::size_t> count_{0};
};

/// Called before a group aborts, and when a failure ends it, before the program gets the error.
class AbortHooks : public HookTable<> {
public:
    /// Calls `first`, then the hooks, on this thread and without the interpreter's lock. Does
    /// nothing inside a hook, and nothing once the interpreter ends. The caller must have no lock,
    /// because a hook may call the group.
    void run(const Callback& first);
    /// The same for a failure, unless an earlier run is over. During a run, other threads that get
    /// the failure call the hooks too: a thread that did not could end the process meanwhile.
    void run_once(const Callback& first) {
        if (!ran_) run(first);
    }

private:
    std::atomic<bool> ran_{false};
};

/// The hooks of one group.
struct Hooks {
    AbortHooks abort;
    /// Gets the key of a successful call, and how many milliseconds it took if calls are timed.
    HookTable<uint64_t, std::optional<float>> completion;
    std::atomic<bool> timing{false};  // of calls that begin from now on
};

}  // namespace tutti_torch
