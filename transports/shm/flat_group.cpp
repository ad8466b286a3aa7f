#include "transports/shm/flat_group.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace tutti::shm {

namespace {

FlatHeader& header_of(std::byte* memory) {
    return *reinterpret_cast<FlatHeader*>(memory);
}

}  // namespace

void ClosedGroups::add(const Arena::Block& block, Rank size) {
    const std::lock_guard lock(mutex_);
    closed_.push_back({block, size});
}

void ClosedGroups::reuse() {
    const std::lock_guard lock(mutex_);
    std::erase_if(closed_, [&](const Closed& group) {
        // Pairs with ~FlatMember: a member that has left no longer reads the memory.
        const uint32_t left = header_of(group.block.data).left.load(std::memory_order_acquire);
        if (std::cmp_less(left, group.size)) return false;
        arena_->give(group.block);
        return true;
    });
}

FlatMember::FlatMember(Rank own_rank, Rank group_size, uint32_t stream_count)
    : rank(own_rank),
      size(group_size),
      layout(group_size, stream_count),
      streams(stream_count),
      process_(::getpid()),
      backed_bytes_(stream_count) {}

FlatMember::~FlatMember() {
    // A forked child is not a member.
    if (memory == nullptr || process_ != ::getpid()) return;
    // Pairs with ClosedGroups::reuse(): the leader may overwrite what this member has read. The
    // read-modify-write also passes on the release of each member that left before; a store of the
    // sum would not.
    header_of(memory).left.fetch_add(1, std::memory_order_acq_rel);
    if (closed) closed->add({place, memory, round_up(layout.bytes(), page_bytes)}, size);
}

Result<> FlatMember::prepare(uint32_t stream, std::size_t bytes) {
    std::size_t& backed_bytes = backed_bytes_[stream];
    if (bytes <= flat_inline_bytes || bytes <= backed_bytes) return {};
    for (uint64_t turn = 0; turn < flat_depth; ++turn) {
        const std::size_t area =
            layout.areas_offset(stream, turn) + static_cast<std::size_t>(rank) * flat_slot_bytes;
        TUTTI_TRY(segments->back(place.after(area), bytes));
    }
    backed_bytes = bytes;
    return {};
}

}  // namespace tutti::shm
