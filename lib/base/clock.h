// Monotonic time and deadlines.
#pragma once

#include <cstdint>
#include <ctime>
#include <limits>

namespace tutti {

/// The time that now_ns() returns instead of the machine's: set by tests that simulate time, before
/// they start threads. nullptr in production.
inline constinit const int64_t* virtual_now_ns = nullptr;

inline int64_t now_ns() {
    if (virtual_now_ns != nullptr) [[unlikely]]
        return *virtual_now_ns;
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// Rounded down. For comparing with a time-out in milliseconds, which may be too large for
/// nanoseconds.
constexpr int64_t ns_to_ms(int64_t ns) {
    return ns / 1'000'000;
}

/// Seconds since 1970, for comparison with other machines' times. It may jump.
inline int64_t wall_clock_s() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec;
}

/// A cheap monotonic counter for time stamps on hot paths; nanoseconds if the machine has no
/// cheaper one. TickScale turns differences into time.
#if defined(__x86_64__)
inline uint64_t ticks() {
    return __builtin_ia32_rdtsc();  // <immintrin.h> would include 40,000 lines
}
#elif defined(__aarch64__)
inline uint64_t ticks() {
    uint64_t count = 0;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
}
#else
inline uint64_t ticks() {
    return static_cast<uint64_t>(now_ns());
}
#endif

/// Fixes a moment in both clocks; a later moment gives the rate between them.
class TickScale {
public:
    TickScale() : ticks_(ticks()), ns_(now_ns()) {}
    /// The time of an earlier stamp, as now_ns() would have returned it.
    int64_t to_ns(uint64_t stamp) const {
        const uint64_t passed = ticks() - ticks_;
        if (passed == 0) return ns_;
        const double rate = static_cast<double>(now_ns() - ns_) / static_cast<double>(passed);
        return ns_ + static_cast<int64_t>(
                         static_cast<double>(static_cast<int64_t>(stamp - ticks_)) * rate);
    }

private:
    uint64_t ticks_;
    int64_t ns_;
};

/// Tells the core that this is a spin-wait turn.
inline void cpu_relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");  // most cores execute `yield` as a no-op
#endif
}

/// A moment after which a wait gives up. Default-constructed: never.
class Deadline {
public:
    Deadline() = default;
    /// timeout_ms of 0 or less: never (the contract's "0 = for ever"); likewise if the deadline
    /// overflows.
    static Deadline after_ms(int64_t timeout_ms) {
        Deadline d;
        const int64_t now = now_ns();
        if (timeout_ms > 0 && timeout_ms <= ns_to_ms(d.at_ns_ - now))
            d.at_ns_ = now + timeout_ms * 1'000'000;
        return d;
    }
    bool never() const { return at_ns_ == std::numeric_limits<int64_t>::max(); }
    bool passed() const { return !never() && now_ns() >= at_ns_; }
    /// Milliseconds left for poll(): at least 0, at most limit_ms; limit_ms if never.
    int64_t left_ms(int64_t limit_ms) const {
        if (never()) return limit_ms;
        const int64_t left = (at_ns_ - now_ns() + 999'999) / 1'000'000;
        return left < 0 ? 0 : left < limit_ms ? left : limit_ms;
    }
    /// This deadline, or that in limit_ms if it comes earlier; at least a millisecond from now.
    Deadline within_ms(int64_t limit_ms) const {
        const int64_t left = left_ms(limit_ms);
        return after_ms(left > 1 ? left : 1);
    }
    int64_t at_ns() const { return at_ns_; }

private:
    int64_t at_ns_ = std::numeric_limits<int64_t>::max();
};

/// A limit as the program set it, for error messages, and the moment at which it passes.
struct TimeLimit {
    int64_t ms = 0;
    Deadline by;

    static TimeLimit from_now(int64_t ms) { return {ms, Deadline::after_ms(ms)}; }
};

}  // namespace tutti
