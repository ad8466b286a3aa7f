// The two halves of a TCP channel: a lane's side of a flow.
#pragma once

#include <memory>

#include "transports/tcp/connection.h"

namespace tutti::tcp {

class TcpSender final : public Sender {
public:
    TcpSender(std::shared_ptr<Connection> connection, Flow& flow)
        : connection_(std::move(connection)), flow_(flow) {}
    ~TcpSender() override;

    std::byte* reserve(std::size_t bytes) override;
    void commit(const Tag& tag, std::size_t bytes) override;
    bool can_push() override;
    void push(const Tag& tag, const std::byte* data, std::size_t bytes) override;
    bool drained() override;
    void cancel() override;
    void arm(bool on) override { flow_.out.sleeper.announce(on); }
    Code health() const override;

private:
    void enqueue(const SendQueue::Message& message);

    const std::shared_ptr<Connection> connection_;
    Flow& flow_;
    uint64_t borrowed_ = 0;  // drained once this many messages were sent
    int reserved_ = CellPool::none;
    std::size_t reserved_bytes_ = 0;
    bool no_memory_ = false;
};

class TcpReceiver final : public Receiver {
public:
    TcpReceiver(std::shared_ptr<Connection> connection, Flow& flow)
        : connection_(std::move(connection)), flow_(flow) {}
    ~TcpReceiver() override;

    void offer(const Tag& tag, std::byte* where, std::size_t bytes) override;
    Message peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override { connection_->cancel_offer(flow_); }
    void arm(bool on) override { flow_.in.sleeper.announce(on); }
    Code health() const override;

private:
    bool has_message() const;

    const std::shared_ptr<Connection> connection_;
    Flow& flow_;
};

}  // namespace tutti::tcp
