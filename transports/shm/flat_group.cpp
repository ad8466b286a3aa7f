#include "transports/shm/flat_group.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transport/flat/flat_exchange.h"

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
        // Pairs with ~FlatMember: who has left has read what it wanted.
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
      process_(::getpid()) {}

FlatMember::~FlatMember() {
    // A forked child is no member.
    if (memory == nullptr || process_ != ::getpid()) return;
    header_of(memory).left.fetch_add(1, std::memory_order_acq_rel);
    if (closed) closed->add({place, memory, round_up(layout.bytes(), page_bytes)}, size);
}

Result<> FlatMember::back(uint32_t stream, std::size_t bytes) {
    FlatStream& state = streams[stream];
    if (bytes <= flat_inline_bytes || bytes <= state.backed_bytes) return {};
    for (uint64_t turn = 0; turn < flat_depth; ++turn) {
        const std::size_t area =
            layout.areas_offset(stream, turn) + static_cast<std::size_t>(rank) * flat_slot_bytes;
        TUTTI_TRY(segments->back(place.after(area), bytes));
    }
    state.backed_bytes = bytes;
    return {};
}

bool FlatGroup::serves(Collective collective, std::size_t bytes) const {
    switch (collective) {
        case Collective::allreduce:
        case Collective::broadcast:
        case Collective::barrier:
            return bytes <= flat_slot_bytes;
        default:
            return false;
    }
}

Result<std::unique_ptr<Operation>> FlatGroup::bind(const IntrinsicShape& shape) {
    TUTTI_ASSIGN(const std::size_t bytes, flat_contribution_bytes(*this, shape));
    if (shape.stream >= member_->streams.size())
        return fail(Code::invalid, "flat: stream {} of {}", shape.stream, member_->streams.size());
    if (shape.root < 0 || shape.root >= member_->size)
        return fail(Code::invalid, "flat: root {} of {} ranks", shape.root, member_->size);
    const bool writes = shape.collective == Collective::allreduce ||
                        (shape.collective == Collective::broadcast && shape.root == member_->rank);
    if (writes) TUTTI_TRY(member_->back(shape.stream, bytes));
    return make_flat_operation(member_, shape);
}

void FlatGroup::reset() {
    // Turns hold the epoch, so what lies in the slots is never taken for a new operation's.
    for (FlatStream& stream : member_->streams) {
        stream.started = 0;
        stream.seen = 0;
    }
}

}  // namespace tutti::shm
