#include "transport/mapped/channel_pool.h"

#include <algorithm>

namespace tutti {

bool ChannelPool::has_reader(const ChannelSpace& space) const {
    if (reader_ended_ && reader_ended_->load(std::memory_order_acquire)) return false;
    return !mapped_reader_closed(space.block.data);
}

ChannelPool::~ChannelPool() {
    for (const auto& space : take_closed()) arena_->give(space->block);
    // A reader of a channel that is left may read large cells of any channel before it.
    if (!closed_.empty()) return;
    for (const auto& set : cell_sets_) bare_cell_sets_.push_back(set->place);
    for (const SegmentPlace place : bare_cell_sets_)
        arena_->give(
            {place, arena_->segments()->at(place, mapped_cell_set_bytes), mapped_cell_set_bytes});
}

// Takes closed channels whose reader has closed too, and frees their large cells. The caller holds
// mutex_.
std::vector<std::unique_ptr<ChannelSpace>> ChannelPool::take_closed() {
    std::vector<std::unique_ptr<ChannelSpace>> out;
    const auto still_read = [this](const std::unique_ptr<ChannelSpace>& space) {
        return has_reader(*space);
    };
    const auto end = std::partition(closed_.begin(), closed_.end(), still_read);
    std::move(end, closed_.end(), std::back_inserter(out));
    closed_.erase(end, closed_.end());
    for (const auto& space : out)
        if (space->cells != nullptr) space->cells->user = nullptr;
    channels_ -= out.size();
    return out;
}

Result<std::unique_ptr<ChannelSpace>> ChannelPool::open() {
    std::vector<std::unique_ptr<ChannelSpace>> done;
    bool wants_cells = false;
    {
        const std::lock_guard lock(mutex_);
        done = take_closed();
        wants_cells = ++channels_ > cell_sets_.size() + bare_cell_sets_.size();
    }
    // The arena has a lock of its own.
    for (const auto& space : done) arena_->give(space->block);
    const auto refused = [&](Error error) {
        const std::lock_guard lock(mutex_);
        --channels_;
        return tl::unexpected(std::move(error));
    };
    if (wants_cells) {
        auto set = arena_->take(mapped_cell_set_bytes, 0);
        if (!set) return refused(std::move(set).error());
        const std::lock_guard lock(mutex_);
        bare_cell_sets_.push_back(set->place);
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

void ChannelPool::return_cells(ChannelSpace& space, uint64_t position) {
    space.position = position;
    // Pairs with take_back(): the thread that takes the set sees the position up to which the
    // reader must have read.
    space.loan.store(Loan::idle, std::memory_order_release);
}

Result<> ChannelPool::borrow(ChannelSpace& space) {
    Loan idle = Loan::idle;
    if (space.loan.compare_exchange_strong(idle, Loan::used, std::memory_order_acquire,
                                           std::memory_order_relaxed)) [[likely]]
        return {};
    const std::lock_guard lock(mutex_);
    // Another thread may have examined the set and left it, because it was in use.
    if (space.loan.load(std::memory_order_relaxed) == Loan::none) {
        TUTTI_ASSIGN(space.cells, find_cells());
        space.cells->user = &space;
    }
    space.loan.store(Loan::used, std::memory_order_relaxed);
    return {};
}

bool ChannelPool::take_back(CellSet& set) {
    ChannelSpace& user = *set.user;
    Loan idle = Loan::idle;
    if (!user.loan.compare_exchange_strong(idle, Loan::examined, std::memory_order_acquire,
                                           std::memory_order_relaxed))
        return false;
    if (!mapped_cells_home(user.block.data, user.position)) {
        user.loan.store(Loan::idle, std::memory_order_release);
        return false;
    }
    user.cells = nullptr;
    user.loan.store(Loan::none, std::memory_order_release);
    return true;
}

Result<ChannelPool::CellSet*> ChannelPool::find_cells() {
    for (const auto& set : cell_sets_)
        if (set->user == nullptr) return set.get();
    for (const auto& set : cell_sets_)
        if (take_back(*set)) return set.get();
    const SegmentPlace place = bare_cell_sets_.back();
    TUTTI_TRY(arena_->segments()->back(place, mapped_cell_set_bytes));
    bare_cell_sets_.pop_back();
    auto set = std::make_unique<CellSet>();
    set->place = place;
    set->data = arena_->segments()->at(place, mapped_cell_set_bytes);
    cell_sets_.push_back(std::move(set));
    return cell_sets_.back().get();
}

std::size_t ChannelPool::cell_set_bytes() const {
    const std::lock_guard lock(mutex_);
    return cell_sets_.size() * mapped_cell_set_bytes;
}

}  // namespace tutti
