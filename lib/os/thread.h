// Threads of tutti's own.
#pragma once

#include <pthread.h>

#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace tutti {

/// Has a stack of its own size: by default it would follow `ulimit -s`, however little that leaves.
class Thread {
public:
    Thread() = default;
    Thread(Thread&& other) noexcept : id_(std::exchange(other.id_, {})) {}
    Thread& operator=(Thread&& other) noexcept {
        std::swap(id_, other.id_);
        return *this;
    }
    ~Thread() { join(); }

    /// system: which limit there is of threads.
    static Result<Thread> start(std::string_view purpose, std::function<void()> body);
    /// Nothing, if there is none (any more).
    void join();
    /// It ends when its body does.
    void detach();
    /// Whether the caller runs on it.
    bool is_this() const { return id_ && pthread_equal(*id_, pthread_self()) != 0; }

private:
    explicit Thread(pthread_t id) : id_(id) {}
    std::optional<pthread_t> id_;
};

}  // namespace tutti
