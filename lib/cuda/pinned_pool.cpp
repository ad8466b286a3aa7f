#include "cuda/pinned_pool.h"

#include <algorithm>
#include <bit>

namespace tutti::device {
namespace {

// Sizes are powers of two, so that messages that grow do not leave one of each length behind.
constexpr std::size_t least_bytes = 64 * 1024;

}  // namespace

PinnedPool::Lease PinnedPool::reuse(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
        if ((*it)->size() >= bytes && (best == free_.end() || (*it)->size() < (*best)->size()))
            best = it;
    if (best == free_.end()) return Lease(nullptr, GiveBack{this});
    PinnedBuffer* const taken = best->release();
    free_.erase(best);
    return Lease(taken, GiveBack{this});
}

Result<PinnedPool::Lease> PinnedPool::allocate(std::size_t bytes) {
    TUTTI_ASSIGN(PinnedBuffer made,
                 PinnedBuffer::allocate(context_, std::bit_ceil(std::max(bytes, least_bytes))));
    return Lease(new PinnedBuffer(std::move(made)), GiveBack{this});
}

void PinnedPool::give(PinnedBuffer* buffer) {
    const std::lock_guard lock(mutex_);
    free_.emplace_back(buffer);
}

}  // namespace tutti::device
