// tutti's own threads.
#pragma once

#include <pthread.h>

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tutti {

/// A thread with a stack of fixed size: by default the size would follow `ulimit -s`, which may be
/// too small.
class Thread {
public:
    Thread() = default;
    Thread(Thread&& other) noexcept : id_(std::exchange(other.id_, {})) {}
    Thread& operator=(Thread&& other) noexcept {
        std::swap(id_, other.id_);
        return *this;
    }
    ~Thread() { join(); }

    /// system: the error names the limit of threads.
    static Result<Thread> start(std::string_view purpose, std::function<void()> body);
    /// Does nothing if there is no thread (any more).
    void join();
    /// The thread ends when its body returns.
    void detach();
    /// Whether the caller runs on this thread.
    bool is_this() const { return id_ && pthread_equal(*id_, pthread_self()) != 0; }

private:
    explicit Thread(pthread_t id) : id_(id) {}
    std::optional<pthread_t> id_;
};

}  // namespace tutti
