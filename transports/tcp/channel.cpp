#include "transports/tcp/channel.h"

#include <cassert>
#include <utility>

namespace tutti::tcp {

// ---- sending ---------------------------------------------------------------------------------

TcpSender::~TcpSender() {
    TcpSender::cancel();
    flow_.out.sleeper.announce(false);
    connection_->close_sender(flow_);
}

bool TcpSender::can_push() {
    return flow_.out.pushed.load(std::memory_order_relaxed) <
               flow_.out.allowed.load(std::memory_order_seq_cst) &&
           connection_->health() == Code::ok;
}

std::byte* TcpSender::reserve(std::size_t bytes) {
    if (!can_push()) return nullptr;
    CellPool& staging = flow_.out.staging;
    if (reserved_ == CellPool::none) {
        reserved_ = staging.take(bytes);
        reserved_bytes_ = bytes;
    } else if (bytes > reserved_bytes_) {
        reserved_bytes_ = bytes;
        if (!staging.fit(reserved_, bytes)) staging.give(std::exchange(reserved_, CellPool::none));
    }
    no_memory_ = reserved_ == CellPool::none;
    return no_memory_ ? nullptr : staging.data(reserved_);
}

void TcpSender::commit(const Tag& tag, std::size_t bytes) {
    assert(reserved_ != CellPool::none && bytes <= reserved_bytes_);
    const int cell = std::exchange(reserved_, CellPool::none);
    enqueue({tag, flow_.out.staging.data(cell), static_cast<uint32_t>(bytes), cell});
}

void TcpSender::push(const Tag& tag, const std::byte* data, std::size_t bytes) {
    enqueue({tag, data, static_cast<uint32_t>(bytes), CellPool::none});
}

// What was built counts for drained() too, though its memory is ours: an operation that ended
// before the kernel had taken everything would leave the rest to nobody.
void TcpSender::enqueue(const SendQueue::Message& message) {
    assert(message.bytes <= max_message_bytes);
    SendQueue& out = flow_.out;
    const uint64_t position = out.pushed.load(std::memory_order_relaxed);
    assert(position < out.allowed.load(std::memory_order_relaxed));
    out.at(position) = message;
    borrowed_ = position + 1;
    // Pairs with batch(): the message before the count.
    out.pushed.store(position + 1, std::memory_order_seq_cst);
    connection_->kick(flow_);
}

bool TcpSender::drained() {
    return flow_.out.sent.load(std::memory_order_seq_cst) >= borrowed_ ||
           connection_->health() != Code::ok;
}

void TcpSender::cancel() {
    if (reserved_ != CellPool::none)
        flow_.out.staging.give(std::exchange(reserved_, CellPool::none));
    if (!drained()) connection_->cancel_sends(flow_);
    borrowed_ = 0;
}

Code TcpSender::health() const {
    return no_memory_ ? Code::no_memory : connection_->health();
}

// ---- receiving -------------------------------------------------------------------------------

TcpReceiver::~TcpReceiver() {
    TcpReceiver::cancel();
    flow_.in.sleeper.announce(false);
    connection_->close_receiver(flow_);
}

bool TcpReceiver::has_message() const {
    return flow_.in.arrived.load(std::memory_order_seq_cst) !=
           flow_.in.released.load(std::memory_order_relaxed);
}

void TcpReceiver::offer(const Tag& tag, std::byte* where, std::size_t bytes) {
    ReceiveQueue& in = flow_.in;
    auto state = ReceiveQueue::Offer::open;
    const bool free = in.offer.compare_exchange_strong(state, ReceiveQueue::Offer::none) ||
                      state == ReceiveQueue::Offer::none;
    // Taken: the message is arriving where it was wanted before.
    if (!free || !where || has_message()) return;
    in.offer_tag = tag;
    in.offer_data = where;
    in.offer_bytes = bytes;
    in.offer_position = in.released.load(std::memory_order_relaxed);
    in.offer.store(ReceiveQueue::Offer::open, std::memory_order_release);
}

Receiver::Message TcpReceiver::peek(const Tag& expected, std::size_t bytes) {
    for (;;) {
        if (!has_message()) return {};
        const uint64_t position = flow_.in.released.load(std::memory_order_relaxed);
        const ReceiveQueue::Message& message = flow_.in.at(position);
        switch (match(expected, message.tag)) {
            case TagMatch::stale:
                release();
                continue;
            case TagMatch::different:
                return {message.data, message.tag};
            case TagMatch::equal:
                break;
        }
        if (message.bytes == bytes) return {message.data, message.tag};
        connection_->reject(fmt::format("protocol error: it sent {} bytes where its call has {}",
                                        message.bytes, bytes));
        release();
    }
}

void TcpReceiver::release() {
    ReceiveQueue& in = flow_.in;
    const uint64_t position = in.released.load(std::memory_order_relaxed);
    if (const int cell = in.at(position).cell; cell != CellPool::none) in.cells.give(cell);
    in.released.store(position + 1, std::memory_order_seq_cst);
    if (in.credits_due()) connection_->kick(flow_);
}

Code TcpReceiver::health() const {
    return has_message() ? Code::ok : connection_->health();
}

}  // namespace tutti::tcp
