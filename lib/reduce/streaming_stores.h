// Decides whether a sender writes shared memory with streaming stores, past the cache.
//
// A sender that writes a cell again finds its lines in the cache of the core that has read them.
// Between cores that share a cache, getting them back takes little time. Between other cores
// (chiplets, sockets) every store waits for its line, one after the other, and writing to memory is
// several times as fast. Ranks may move between cores, and a virtual machine may not say which
// cores share a cache. So the sender measures: it writes most messages the way that was faster, and
// now and then one the other way. docs/adr/0014-past-the-cache.md has the figures.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/clock.h"

namespace tutti {

/// Chooses, message by message, how one thread writes. For one thread at a time: the writer's.
class StreamingStorePolicy {
public:
    /// gain: streaming stores must be `gain` times as fast as ordinary ones. The reader pays for
    /// them: a message in a shared cache is read sooner than one in memory.
    explicit StreamingStorePolicy(double gain) : gain_(gain) {}

    /// Calls write(past), which writes the next message of `bytes` bytes (at least one), past the
    /// cache or not; the time that it takes decides about later messages.
    template <class Write>
    void measure(std::size_t bytes, Write&& write) {
        const bool past = next();
        const uint64_t begin = ticks();
        write(past);
        took(past, bytes, ticks() - begin);
    }
    /// Writes a message that is a copy.
    void copy(void* to, const void* from, std::size_t bytes);

    /// Whether the next message is written past the cache.
    bool next() {
        const uint32_t message = written_++;
        const uint32_t period = message < learning_messages ? often : seldom;
        return prefers_ != (message % period == period - 1);
    }
    void took(bool past, std::size_t bytes, uint64_t ticks) {
        assert(bytes > 0);
        const double cost =
            static_cast<double>(std::max<uint64_t>(ticks, 1)) / static_cast<double>(bytes);
        CopyCost& own = costs_[past];
        // The first few messages write to memory that is new to the process. A message during which
        // the thread was descheduled is not representative, so its cost is bounded.
        if (own.messages < first_messages)
            own.average = own.messages++ == 0 ? cost : std::min(own.average, cost);
        else
            own.average += (std::min(cost, most_growth * own.average) - own.average) / window;
        const double in = costs_[false].average, around = costs_[true].average;
        if (in > 0 && around > 0) prefers_ = in > around * (prefers_ ? gain_ / 1.2 : gain_);
    }
    bool prefers() const { return prefers_; }

private:
    // One message in this number is written the other way. Primes, because the steps of a schedule
    // alternate and each kind must be measured both ways.
    static constexpr uint32_t learning_messages = 32, often = 5, seldom = 61;
    static constexpr uint32_t first_messages = 4;
    static constexpr double most_growth = 2, window = 8;
    struct CopyCost {
        double average = 0;  // ticks per byte; 0: none yet
        uint32_t messages = 0;
    };
    double gain_;
    std::array<CopyCost, 2> costs_;  // ordinary stores, streaming stores
    uint32_t written_ = 0;
    bool prefers_ = false;
};

/// Copies a message of any length. policy: decides about streaming stores; nullptr: uses memcpy.
inline void copy_message(StreamingStorePolicy* policy, void* to, const void* from,
                         std::size_t bytes) {
    if (policy)
        policy->copy(to, from, bytes);
    else if (bytes > 0)
        std::memcpy(to, from, bytes);
}

}  // namespace tutti
