// Detects that this process is a forked child of the process that made an object.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace tutti {

/// Remembers the process in which it was constructed.
class HomeProcess {
public:
    HomeProcess() {
        static const int registered = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
        (void)registered;
    }
    /// False in a child that was forked since.
    bool here() const { return forks.load(std::memory_order_relaxed) == forks_; }
    /// The number of forks between this process and the first one that used the library.
    uint32_t depth() const { return forks_; }

private:
    static inline std::atomic<uint32_t> forks{0};
    const uint32_t forks_ = forks.load(std::memory_order_relaxed);
};

/// A static object, one per process. A forked child makes its own, because another thread of the
/// parent may have held a mutex of the parent's at the fork. None is ever destroyed.
template <typename T>
class PerProcess {
public:
    T& here() {
        OfProcess* known = current_.load();
        if (known && known->home.here()) return known->value;
        auto own = std::make_unique<OfProcess>(known);
        if (!current_.compare_exchange_strong(known, own.get())) return known->value;
        return own.release()->value;
    }

private:
    struct OfProcess {
        explicit OfProcess(OfProcess* before) : parents(before) {}
        const HomeProcess home;
        OfProcess* const parents;  // referenced, so that leak checkers do not report it
        T value;
    };
    std::atomic<OfProcess*> current_{nullptr};
};

}  // namespace tutti
