// Whether shared memory is better written past the cache.
//
// Whoever writes a cell again finds its lines in the cache of the core that has read them. Between
// cores that share a cache that is soon settled. Between others (chiplets, sockets) every line has
// to be fetched back first, one after the other, which takes up to ten times as long as writing to
// memory. Where ranks run, nobody knows for long, and a virtual machine may not say what its cores
// share. So the writer measures: most messages are written the way that was faster, and now and
// then one the other way.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// Of one writer's messages.
class PastCache {
public:
    /// To write past the cache has to be so much faster. The reader pays for it: what comes from a
    /// cache that is shared is there sooner than what comes from memory.
    explicit PastCache(double gain) : gain_(gain) {}

    /// Decides how the next message is written.
    void next() {
        const uint32_t message = written_++;
        const uint32_t period = message < learning ? often : seldom;
        past_ = prefers_ != (message % period == period - 1);
    }
    bool past() const { return past_; }
    /// The message was written so, in so many ticks().
    void took(std::size_t bytes, uint64_t ticks) {
        const double cost = static_cast<double>(ticks) / static_cast<double>(bytes);
        Cost& own = costs_[past_];
        // The first few find memory that is new to the process; a message during which the thread
        // did not run says little.
        if (own.messages < first)
            own.average = own.messages++ == 0 ? cost : std::min(own.average, cost);
        else
            own.average += (std::min(cost, most * own.average) - own.average) / window;
        const double plain = costs_[false].average, past = costs_[true].average;
        if (plain > 0 && past > 0) prefers_ = plain > past * (prefers_ ? gain_ / 1.2 : gain_);
    }
    /// Writes the message so, and measures.
    void copy(void* to, const void* from, std::size_t bytes);
    bool prefers() const { return prefers_; }

private:
    // Odd: messages of several kinds take turns, and each is to be measured both ways.
    static constexpr uint32_t learning = 32, often = 3, seldom = 61;
    static constexpr uint32_t first = 4;
    static constexpr double most = 2, window = 8;
    struct Cost {
        double average = 0;  // ticks per byte; 0: none yet
        uint32_t messages = 0;
    };
    double gain_;
    std::array<Cost, 2> costs_;
    uint32_t written_ = 0;
    bool prefers_ = false;
    bool past_ = false;  // the message that is being written
};

}  // namespace tutti
