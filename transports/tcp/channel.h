// The two halves of a TCP channel: a lane's side of a flow.
#pragma once

#include <memory>

#include "transport/posted/flow_sender.h"
#include "transports/tcp/connection.h"

namespace tutti::tcp {

using TcpSender = FlowSender<Connection, Flow>;

class TcpReceiver final : public Receiver {
public:
    TcpReceiver(std::shared_ptr<Connection> connection, Flow& flow)
        : connection_(std::move(connection)), flow_(flow) {}
    ~TcpReceiver() override;

    void offer(const Tag& tag, std::byte* where, std::size_t bytes) override;
    PeekedMessage peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override { connection_->cancel_offer(flow_); }
    void arm(bool on) override { flow_.in.sleeper.set_sleeping(on); }
    Code health() const override;

private:
    bool has_message() const;

    const std::shared_ptr<Connection> connection_;
    Flow& flow_;
};

}  // namespace tutti::tcp
