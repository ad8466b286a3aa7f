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

void ClosedGroups::add(const Arena::Block& block, std::vector<Rank> members) {
    const std::lock_guard lock(mutex_);
    closed_.push_back({block, std::move(members)});
}

bool ClosedGroups::is_used(const Closed& group) const {
    // Pairs with ~FlatMember: a member that has left no longer accesses the memory.
    const uint64_t left = header_of(group.block.data).left.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < group.members.size(); ++i)
        if ((left >> i & 1) == 0 && !neighbours_->has_ended(group.members[i])) return true;
    return false;
}

void ClosedGroups::reuse() {
    const std::lock_guard lock(mutex_);
    std::erase_if(closed_, [&](const Closed& group) {
        if (is_used(group)) return false;
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
    // The last access: the leader may then give the memory to another group. Pairs with
    // ClosedGroups::is_used(). The read-modify-write also passes on the release of each member that
    // left before; a store would not.
    header_of(memory).left.fetch_or(uint64_t{1} << rank, std::memory_order_acq_rel);
    if (closed) closed->add({place, memory, round_up(layout.bytes(), page_bytes)}, members);
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
