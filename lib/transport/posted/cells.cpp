#include "transport/posted/cells.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "wait/backoff.h"

namespace tutti {

/// The large cells of this process. A channel calls this only to allocate, and when it ends.
class IdleCells {
public:
    static IdleCells& instance() {
        static auto* const cells = new IdleCells;  // channels may outlive static objects
        return *cells;
    }

    void add(CellPool& pool) {
        const std::lock_guard lock(mutex_);
        pools_.push_back(&pool);
    }
    void remove(CellPool& pool) {
        const std::lock_guard lock(mutex_);
        std::erase(pools_, &pool);
        for (const CellPool::Large& large : pool.large_) total_bytes_ -= large.bytes;
    }
    std::size_t total_bytes() {
        const std::lock_guard lock(mutex_);
        return total_bytes_;
    }
    /// Exchanges a cell's memory, which is too small, for larger memory.
    CellPool::Large exchange(CellPool& pool, CellPool::Large old, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        total_bytes_ -= std::exchange(old, {}).bytes;
        if (total_bytes_ + bytes > kept_bytes)
            if (CellPool::Large found = find_idle(pool, bytes); found.data) return found;
        CellPool::Large made;
        made.data = CellPool::allocate(bytes);
        if (!made.data) return {};
        made.bytes = bytes;
        total_bytes_ += bytes;
        return made;
    }

private:
    // Below kept_bytes the process allocates. It also allocates if no channel has been idle for
    // idle_ns.
    static constexpr std::size_t kept_bytes = std::size_t{64} << 20;
    static constexpr int64_t idle_ns = 100'000'000;

    /// Searches idle pools round-robin, beginning where the last search ended. Caller holds mutex_.
    CellPool::Large find_idle(const CellPool& wanting, std::size_t bytes) {
        const int64_t now = now_ns();
        for (std::size_t looks = 0; looks < pools_.size(); ++looks) {
            CellPool& pool = *pools_[++last_ % pools_.size()];
            const bool idle = now - pool.used_ns_.load(std::memory_order_relaxed) > idle_ns;
            if (&pool == &wanting || !idle) continue;
            if (CellPool::Large found = take_from(pool, bytes); found.data) {
                --last_;  // the next search begins at this pool again, which may have more
                return found;
            }
        }
        return {};
    }

    /// Claims a free cell as the pool's owner would, and gives it back without its memory.
    static CellPool::Large take_from(CellPool& pool, std::size_t bytes) {
        CellPool::Large found;
        pool.examined_.store(true, std::memory_order_seq_cst);
        for (int cell = 0; cell < static_cast<int>(credits_per_channel) && !found.data; ++cell) {
            const uint32_t bit = 1U << cell;
            // Acquire pairs with give(), as in claim(). Release pairs with claim(): the pool's
            // taking thread, which sees no free cell, then also sees the examiner.
            if ((pool.free_.fetch_and(~bit, std::memory_order_acq_rel) & bit) == 0) continue;
            CellPool::Large& large = pool.large_[static_cast<std::size_t>(cell)];
            if (large.bytes >= bytes) found = std::exchange(large, {});
            pool.give(cell);
        }
        // Pairs with wait_for_examiner(): the cell is free again before the examiner clears the
        // flag.
        pool.examined_.store(false, std::memory_order_seq_cst);
        return found;
    }

    std::mutex mutex_;
    std::vector<CellPool*> pools_;
    std::size_t last_ = 0;
    std::size_t total_bytes_ = 0;
};

std::size_t CellPool::large_bytes_of_process() {
    return IdleCells::instance().total_bytes();
}

CellPool::~CellPool() {
    for (uint32_t cell = 0; cell < credits_per_channel; ++cell) uncount(cell);
    if (listed_) IdleCells::instance().remove(*this);
}

/// Call when no cell is free. True: an examining thread held a cell, and has given it back by now.
bool CellPool::wait_for_examiner() const {
    for (int turn = 0; examined_.load(std::memory_order_seq_cst); ++turn) spin_turn(turn);
    return free_.load(std::memory_order_acquire) != 0;
}

void CellPool::enlarge(Large& large, std::size_t bytes) {
    if (!std::exchange(listed_, true)) IdleCells::instance().add(*this);
    const std::size_t counted = large.counted;
    large = IdleCells::instance().exchange(*this, std::move(large), bytes);
    large.counted = counted;
}

}  // namespace tutti
