// A posted transport's own message memory: as many cells as a channel has credits.
//
// A channel keeps its large cells as long as it uses them. If the process has many, a channel that
// needs some takes those of channels that have been idle for a while, so that communicators that
// run alternately share them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/types.h"

namespace tutti {

/// Messages in flight per channel. The receiver returns credits when half of them are owed, so the
/// sender can use the other half meanwhile.
inline constexpr uint32_t credits_per_channel = 8;

/// One thread takes cells, another may give them back. A cell keeps its memory, so a steady state
/// allocates nothing. The lowest free cell goes first, because its memory was used last and is in
/// the cache.
class CellPool {
public:
    static constexpr int none = -1;

    CellPool() = default;
    ~CellPool();
    CellPool(const CellPool&) = delete;
    CellPool& operator=(const CellPool&) = delete;
    /// From now on the pool also adds the bytes of large messages to that counter, until the cell
    /// is given back.
    void count_in(std::atomic<std::size_t>& bytes) { counted_ = &bytes; }

    /// A cell of at least `bytes` bytes; none if memory is exhausted or every cell is taken.
    int take(std::size_t bytes) {
        const int cell = claim();
        if (cell == none) return none;
        if (!fit(cell, bytes)) {
            give(cell);
            return none;
        }
        if (counted_ && bytes > small_bytes) {
            large_[static_cast<std::size_t>(cell)].counted = bytes;
            counted_->fetch_add(bytes, std::memory_order_relaxed);
        }
        return cell;
    }
    /// Makes a taken cell larger; its contents are lost.
    bool fit(int cell, std::size_t bytes) {
        const auto index = static_cast<std::size_t>(cell);
        if (bytes <= small_bytes) {
            if (!small_) small_ = allocate(small_bytes * credits_per_channel);
            data_[index] = small_ ? aligned(small_) + index * small_bytes : nullptr;
        } else {
            Large& large = large_[index];
            used_ns_.store(now_ns(), std::memory_order_relaxed);
            if (large.bytes < bytes) enlarge(large, round_up(bytes, small_bytes));
            data_[index] = large.data ? aligned(large.data) : nullptr;
        }
        return data_[index] != nullptr;
    }
    /// The memory of all large cells of this process. Any thread.
    static std::size_t large_bytes_of_process();
    std::byte* data(int cell) const { return data_[static_cast<std::size_t>(cell)]; }
    void give(int cell) {
        if (cell == none) return;
        uncount(static_cast<std::size_t>(cell));
        free_.fetch_or(1U << cell, std::memory_order_release);
    }

private:
    friend class IdleCells;

    // The pool allocates all small cells at once: otherwise the first late message of a busy
    // channel would allocate in the steady state.
    static constexpr std::size_t small_bytes = 4096;

    struct Free {
        void operator()(std::byte* p) const { std::free(p); }
    };
    using Memory = std::unique_ptr<std::byte[], Free>;
    struct Large {
        Memory data;
        std::size_t bytes = 0;
        std::size_t counted = 0;  // bytes added to counted_ while the cell is taken
    };

    /// Claims a free cell for this thread alone.
    int claim() {
        // Pairs with give(): the previous user no longer accesses the cell's memory.
        uint32_t free = free_.load(std::memory_order_acquire);
        for (;;) {
            if (free == 0) {
                if (!wait_for_examiner()) return none;
                free = free_.load(std::memory_order_acquire);
                continue;
            }
            const int cell = std::countr_zero(free);
            if (free_.compare_exchange_weak(free, free & ~(1U << cell), std::memory_order_acquire))
                return cell;
        }
    }
    bool wait_for_examiner() const;
    void enlarge(Large& large, std::size_t bytes);

    // Not aligned_alloc: glibc before 2.38 cannot reuse a freed block for one of the same size and
    // alignment, so each channel that opens and closes would leave a hole.
    static Memory allocate(std::size_t bytes) {
        return Memory(static_cast<std::byte*>(std::malloc(bytes + cache_line_bytes)));
    }
    static std::byte* aligned(const Memory& memory) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory.get());
        return memory.get() + (round_up(address, cache_line_bytes) - address);
    }
    void uncount(std::size_t cell) {
        if (std::size_t& bytes = large_[cell].counted; bytes > 0)
            counted_->fetch_sub(std::exchange(bytes, 0), std::memory_order_relaxed);
    }

    std::atomic<uint32_t> free_{(1U << credits_per_channel) - 1};
    std::atomic<bool> examined_{false};  // set by a thread that may hold a free cell for a moment
    std::array<std::byte*, credits_per_channel> data_{};
    std::array<Large, credits_per_channel> large_;
    Memory small_;
    std::atomic<std::size_t>* counted_ = nullptr;
    std::atomic<int64_t> used_ns_{0};  // when a large cell was last used
    bool listed_ = false;              // registered with IdleCells; the taking thread's
};

/// Copies a message from the caller's memory to a cell of its own. False: there is no memory.
template <typename Message>
bool copy_to_cell(CellPool& cells, Message& message) {
    const int cell = cells.take(message.bytes);
    if (cell == CellPool::none) return false;
    if (message.bytes > 0) std::memcpy(cells.data(cell), message.data, message.bytes);
    message.cell = cell;
    message.data = cells.data(cell);
    return true;
}

}  // namespace tutti
