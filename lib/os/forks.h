// Noticing that this process is the child of the one that made something.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace tutti {

/// Remembers the process that it was made in.
class HomeProcess {
public:
    HomeProcess() {
        static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
        (void)registered;
    }
    /// False in a child that fork() made since.
    bool here() const { return forks.load(std::memory_order_relaxed) == forks_; }
    /// How many forks this process is away from the first that used the library.
    uint32_t depth() const { return forks_; }

private:
    static inline std::atomic<uint32_t> forks{0};
    const uint32_t forks_ = forks.load(std::memory_order_relaxed);
};

}  // namespace tutti
