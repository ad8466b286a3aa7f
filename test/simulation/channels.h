// Channels of collectives: messages in order, with credits.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "simulation/network.h"
#include "transport/channel.h"

namespace simulation {

/// Both halves of a channel share it.
struct Pipe {
    struct Message {
        Tag tag;
        std::vector<std::byte> data;
    };
    Rank from = nobody, to = nobody;  // ranks of the job
    uint32_t comm = 0;
    uint32_t credits = 8;
    bool peer_gone = false;    // as the sender knows
    bool sender_lost = false;  // as the receiver knows
    bool unsent = false;       // a message since the last cancel() went to a rank that was gone
    std::shared_ptr<Direction> forth = std::make_shared<Direction>();
    Direction back;  // of credits
    std::deque<Message> arrived;

    static constexpr std::size_t max_message_bytes = 64;
};

class SimSender final : public Sender {
public:
    SimSender(World& world, std::shared_ptr<Pipe> pipe) : world_(world), pipe_(std::move(pipe)) {}
    std::byte* reserve(std::size_t bytes) override;
    void commit(const Tag& tag, std::size_t bytes) override;
    bool can_push() override { return pipe_->credits > 0; }
    void push(const Tag& tag, const std::byte* data, std::size_t bytes) override;
    bool drained() override { return true; }
    bool all_sent() override { return !pipe_->unsent; }
    void cancel() override { pipe_->unsent = false; }
    void arm(bool) override {}
    Code health() const override { return pipe_->peer_gone ? Code::peer_lost : Code::ok; }

private:
    World& world_;
    std::shared_ptr<Pipe> pipe_;
    std::vector<std::byte> built_;
};

class SimReceiver final : public Receiver {
public:
    SimReceiver(World& world, std::shared_ptr<Pipe> pipe) : world_(world), pipe_(std::move(pipe)) {}
    void offer(const Tag&, std::byte*, std::size_t) override {}
    PeekedMessage peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override {}
    void arm(bool) override {}
    Code health() const override { return pipe_->sender_lost ? Code::peer_lost : Code::ok; }

private:
    World& world_;
    std::shared_ptr<Pipe> pipe_;
};

}  // namespace simulation
