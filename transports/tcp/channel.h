// The two halves of a TCP channel: a lane's side of a flow.
#pragma once

#include "transport/posted/flow_receiver.h"
#include "transport/posted/flow_sender.h"
#include "transports/tcp/connection.h"

namespace tutti::tcp {

using TcpSender = FlowSender<Connection, Flow>;

class TcpReceiver final : public FlowReceiver<Connection, Flow> {
public:
    using FlowReceiver::FlowReceiver;
    void offer(const Tag& tag, std::byte* where, std::size_t bytes) override {
        ReceiveQueue& in = flow_.in;
        if (!in.offer.withdraw() || !where || in.front()) return;
        in.offer.put(tag, where, bytes, in.released.load(std::memory_order_relaxed));
    }
};

}  // namespace tutti::tcp
