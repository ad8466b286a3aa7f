#include "fabric/messages/buffers.h"

#include <algorithm>

#include "base/log.h"

namespace tutti::fabric {
namespace {

constexpr std::size_t most_receive_bytes = std::size_t{2} << 20;

std::size_t share(std::size_t most, std::size_t queue) {
    return std::clamp<std::size_t>(queue / 2, 4, most);
}

/// Makes count buffers in one new block of memory, and calls add() with each.
template <typename Buffer, typename F>
Result<RegisteredBlock> make_buffers(LibraryMemory& memory, std::size_t count,
                                     std::size_t message_bytes, std::deque<Buffer>& buffers,
                                     F add) {
    const std::size_t each = buffer_bytes(message_bytes);
    TUTTI_ASSIGN(RegisteredBlock block, RegisteredBlock::make(memory, count * each));
    for (std::size_t i = 0; i < count; ++i) {
        Buffer& one = buffers.emplace_back();
        one.data = block.data() + i * each + buffer_offset_bytes;
        one.registration = block.handle();
        add(one);
    }
    return block;
}

}  // namespace

BufferCounts::BufferCounts(const MessengerLimits& limits)
    : message_bytes(envelope_bytes + std::max(limits.port.eager_bytes, max_address_bytes)),
      second_bytes(envelope_bytes + limits.port.copied_bytes),
      sent_bytes(limits.two_pieces
                     ? envelope_bytes + std::max(limits.port.copied_bytes, max_address_bytes)
                     : message_bytes),
      sends(share(most_staged, limits.send_queue)),
      receives(share(
          std::clamp(most_receive_bytes / buffer_bytes(message_bytes), least_bounces, most_bounces),
          limits.receive_queue)),
      second_receives(limits.second ? share(least_bounces, limits.receive_queue) : 0) {}

Result<> SendBuffers::allocate(LibraryMemory& memory, std::size_t count,
                               std::size_t message_bytes) {
    TUTTI_ASSIGN(RegisteredBlock block,
                 make_buffers(memory, count, message_bytes, buffers_,
                              [this](StagedMessage& one) { free_.push_back(&one); }));
    blocks_.push_back(std::move(block));
    return {};
}

Result<> ReceiveBuffers::grow() {
    TUTTI_ASSIGN(RegisteredBlock block,
                 make_buffers(memory_, goal_, bytes_, buffers_, [this](BounceBuffer& one) {
                     one.of = this;
                     one.second = second_;
                     one.bytes = bytes_;
                     free_.push_back(&one);
                 }));
    blocks_.push_back(std::move(block));
    return {};
}

/// Ignores the error if any receives are posted.
Result<> ReceiveBuffers::bear(Error error) const {
    if (posted_ == 0) return tl::unexpected(std::move(error));
    log::warn(wrap(std::move(error), "fewer buffers for incoming messages"));
    return {};
}

}  // namespace tutti::fabric
