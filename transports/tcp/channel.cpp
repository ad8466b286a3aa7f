#include "transports/tcp/channel.h"

namespace tutti::tcp {

TcpReceiver::~TcpReceiver() {
    TcpReceiver::cancel();
    flow_.in.sleeper.set_sleeping(false);
    connection_->close_receiver(flow_);
}

bool TcpReceiver::has_message() const {
    return flow_.in.arrived.load(std::memory_order_seq_cst) !=
           flow_.in.released.load(std::memory_order_relaxed);
}

void TcpReceiver::offer(const Tag& tag, std::byte* where, std::size_t bytes) {
    ReceiveQueue& in = flow_.in;
    if (!in.offer.withdraw() || !where || has_message()) return;
    in.offer.put(tag, where, bytes, in.released.load(std::memory_order_relaxed));
}

Receiver::PeekedMessage TcpReceiver::peek(const Tag& expected, std::size_t bytes) {
    for (;;) {
        if (!has_message()) return {};
        const uint64_t position = flow_.in.released.load(std::memory_order_relaxed);
        const ReceiveQueue::ArrivedMessage& message = flow_.in.at(position);
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
    if (in.credits_due()) connection_->schedule_send(flow_);
}

Code TcpReceiver::health() const {
    return has_message() ? Code::ok : connection_->health();
}

}  // namespace tutti::tcp
