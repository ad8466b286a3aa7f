#include "transport/mapped/channel_pool.h"

#include <algorithm>

namespace tutti {

// Takes closed channels whose reader has closed too, and frees their rings. The caller holds
// mutex_.
std::vector<std::unique_ptr<ChannelSpace>> ChannelPool::take_closed() {
    std::vector<std::unique_ptr<ChannelSpace>> out;
    const auto still_read = [](const std::unique_ptr<ChannelSpace>& space) {
        return !mapped_reader_closed(space->block.data);
    };
    const auto end = std::partition(closed_.begin(), closed_.end(), still_read);
    std::move(end, closed_.end(), std::back_inserter(out));
    closed_.erase(end, closed_.end());
    for (const auto& space : out)
        if (space->ring != nullptr) space->ring->user = nullptr;
    channels_ -= out.size();
    return out;
}

Result<std::unique_ptr<ChannelSpace>> ChannelPool::open() {
    std::vector<std::unique_ptr<ChannelSpace>> done;
    bool wants_ring = false;
    {
        const std::lock_guard lock(mutex_);
        done = take_closed();
        wants_ring = ++channels_ > rings_.size() + bare_rings_.size();
    }
    // The arena has a lock of its own.
    for (const auto& space : done) arena_->give(space->block);
    const auto refused = [&](Error error) {
        const std::lock_guard lock(mutex_);
        --channels_;
        return tl::unexpected(std::move(error));
    };
    if (wants_ring) {
        auto ring = arena_->take(mapped_ring_bytes, 0);
        if (!ring) return refused(std::move(ring).error());
        const std::lock_guard lock(mutex_);
        bare_rings_.push_back(ring->place);
    }
    auto block = arena_->take(mapped_channel_bytes, mapped_channel_bytes);
    if (!block) return refused(std::move(block).error());
    format_mapped_channel(block->data);
    auto space = std::make_unique<ChannelSpace>();
    space->block = *block;
    return space;
}

void ChannelPool::close(std::unique_ptr<ChannelSpace> space) {
    const std::lock_guard lock(mutex_);
    closed_.push_back(std::move(space));
}

void ChannelPool::return_ring(ChannelSpace& space, uint64_t position) {
    space.position = position;
    // Pairs with take_back(): the thread that takes the ring sees the position up to which the
    // reader must have read.
    space.loan.store(Loan::idle, std::memory_order_release);
}

Result<> ChannelPool::borrow(ChannelSpace& space) {
    Loan idle = Loan::idle;
    if (space.loan.compare_exchange_strong(idle, Loan::used, std::memory_order_acquire,
                                           std::memory_order_relaxed)) [[likely]]
        return {};
    const std::lock_guard lock(mutex_);
    // Another thread may have examined the ring and left it, because it was in use.
    if (space.loan.load(std::memory_order_relaxed) == Loan::none) {
        TUTTI_ASSIGN(space.ring, find_ring());
        space.ring->user = &space;
    }
    space.loan.store(Loan::used, std::memory_order_relaxed);
    return {};
}

bool ChannelPool::take_back(Ring& ring) {
    ChannelSpace& user = *ring.user;
    Loan idle = Loan::idle;
    if (!user.loan.compare_exchange_strong(idle, Loan::examined, std::memory_order_acquire,
                                           std::memory_order_relaxed))
        return false;
    if (!mapped_cells_home(user.block.data, user.position)) {
        user.loan.store(Loan::idle, std::memory_order_release);
        return false;
    }
    user.ring = nullptr;
    user.loan.store(Loan::none, std::memory_order_release);
    return true;
}

Result<ChannelPool::Ring*> ChannelPool::find_ring() {
    for (const auto& ring : rings_)
        if (ring->user == nullptr) return ring.get();
    for (const auto& ring : rings_)
        if (take_back(*ring)) return ring.get();
    const SegmentPlace place = bare_rings_.back();
    TUTTI_TRY(arena_->segments()->back(place, mapped_ring_bytes));
    bare_rings_.pop_back();
    auto ring = std::make_unique<Ring>();
    ring->place = place;
    ring->data = arena_->segments()->at(place, mapped_ring_bytes);
    rings_.push_back(std::move(ring));
    return rings_.back().get();
}

std::size_t ChannelPool::ring_bytes() const {
    const std::lock_guard lock(mutex_);
    return rings_.size() * mapped_ring_bytes;
}

}  // namespace tutti
