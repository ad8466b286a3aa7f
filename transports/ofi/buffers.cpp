#include "transports/ofi/buffers.h"

#include <rdma/fi_errno.h>

#include "base/log.h"

namespace tutti::ofi {

Result<> SendBuffers::allocate(LibraryMemory& memory, std::size_t count,
                               std::size_t message_bytes) {
    const std::size_t each = slot_bytes(message_bytes);
    TUTTI_ASSIGN(RegisteredBlock block, RegisteredBlock::make(memory, count * each));
    for (std::size_t i = 0; i < count; ++i) {
        Staged& one = buffers_.emplace_back();
        one.data = block.data() + i * each + slot_offset_bytes;
        one.descriptor = descriptor_of(block.handle());
        free_.push_back(&one);
    }
    blocks_.push_back(std::move(block));
    return {};
}

Result<> ReceiveBuffers::start(std::size_t goal) {
    goal_ = goal;
    if (goal == 0) return {};
    TUTTI_TRY(grow());
    return post();
}

Result<> ReceiveBuffers::grow() {
    const std::size_t each = slot_bytes(bytes_);
    TUTTI_ASSIGN(RegisteredBlock block, RegisteredBlock::make(memory_, goal_ * each));
    for (std::size_t i = 0; i < goal_; ++i) {
        BounceBuffer& one = buffers_.emplace_back();
        one.of = this;
        one.data = block.data() + i * each + slot_offset_bytes;
        one.descriptor = descriptor_of(block.handle());
        free_.push_back(&one);
    }
    blocks_.push_back(std::move(block));
    return {};
}

Result<> ReceiveBuffers::post() {
    while (posted_ < goal_ && objects_.endpoint) {
        if (free_.empty()) {
            // All are held: more memory, so that nobody waits for who does not read.
            if (auto grown = grow(); !grown) {
                if (posted_ == 0) return grown;
                log::warn("{}", grown.error().message);
                return {};
            }
        }
        BounceBuffer& buffer = *free_.back();
        const ssize_t code = fi_recv(endpoint_, buffer.data, bytes_, buffer.descriptor,
                                     FI_ADDR_UNSPEC, static_cast<OpContext*>(&buffer));
        if (code == -FI_EAGAIN) return {};
        if (code != 0 && posted_ == 0)
            return fail(Code::system, "libfabric ({}): posting a receive: {}", objects_.provider(),
                        reason(code));
        if (code != 0) {
            log::warn("libfabric ({}): posting a receive: {}", objects_.provider(), reason(code));
            return {};
        }
        free_.pop_back();
        ++posted_;
    }
    return {};
}

}  // namespace tutti::ofi
