#include "transports/shm/flat_group.h"

#include <unistd.h>

#include <algorithm>

#include "net/reactor.h"
#include "transport/shared_memory.h"

namespace tutti::shm {

FlatMember::~FlatMember() {
    if (reactor_ != nullptr) reactor_->remove(doorbells[static_cast<std::size_t>(rank)]->fd());
}

Result<> FlatMember::watch(Reactor& reactor) {
    // The handler may be in its last call when this rank leaves: it keeps what it reads open.
    const auto own = doorbells[static_cast<std::size_t>(rank)];
    TUTTI_TRY(reactor.add(own->fd(), EPOLLIN, [own](uint32_t) {
        uint64_t rings = 0;
        [[maybe_unused]] const ssize_t got = ::read(own->fd(), &rings, sizeof rings);
    }));
    reactor_ = &reactor;
    return {};
}

Result<> FlatMember::back(uint32_t stream, std::size_t bytes) {
    FlatStream& state = streams[stream];
    if (bytes <= flat_inline_bytes || bytes <= state.backed_bytes) return {};
    for (uint64_t turn = 0; turn < flat_depth; ++turn) {
        const std::size_t area =
            layout.areas_offset(stream, turn) + static_cast<std::size_t>(rank) * flat_slot_bytes;
        TUTTI_TRY(back_memory(memory_fd.get(), area, bytes));
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
    const std::size_t element_bytes = shape.reducer.bytes(Width::raw);
    if (shape.count > flat_slot_bytes / element_bytes)
        return fail(Code::unsupported,
                    "flat: {} elements of {} bytes are over the limit of {} bytes", shape.count,
                    element_bytes, flat_slot_bytes);
    const std::size_t bytes = shape.count * element_bytes;
    if (!serves(shape.collective, bytes))
        return fail(Code::unsupported, "flat: there is no {}", collective_name(shape.collective));
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
