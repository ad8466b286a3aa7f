// The sending half of a posted channel. A flow (flow.h) has two sides: the lane, whose thread
// drives an operation and calls this class, and the wire's owner, the thread that sends.
#pragma once

#include <cassert>
#include <memory>
#include <utility>

#include "transport/posted/flow.h"

namespace tutti {

/// Wire: the connection (tcp) or the port's engine (ucx, ofi), which many flows share. It has
/// schedule_send, cancel_sends, close_sender and health, each for one of its flows, whose outgoing
/// queue is `out`.
template <typename Wire, typename Flow>
class FlowSender final : public Sender {
public:
    FlowSender(std::shared_ptr<Wire> wire, Flow& flow) : wire_(std::move(wire)), flow_(flow) {}
    ~FlowSender() override {
        FlowSender::cancel();
        FlowSender::arm(false);
        wire_->close_sender(flow_);
    }

    // seq_cst, as in all_sent(): the lane announces its sleep by arm() and then looks here once
    // more. The owner publishes `allowed` or `sent` and then looks for a sleeper (Sleeper).
    bool can_push() override {
        return flow_.out.pushed.load(std::memory_order_relaxed) <
                   flow_.out.allowed.load(std::memory_order_seq_cst) &&
               wire_->health(flow_) == Code::ok;
    }
    std::byte* reserve(std::size_t bytes) override;
    void commit(const Tag& tag, std::size_t bytes) override {
        assert(reserved_ != CellPool::none && bytes <= reserved_bytes_);
        const int cell = std::exchange(reserved_, CellPool::none);
        enqueue({tag, flow_.out.staging.data(cell), static_cast<uint32_t>(bytes), cell});
    }
    void push(const Tag& tag, const std::byte* data, std::size_t bytes) override {
        enqueue({tag, data, static_cast<uint32_t>(bytes), CellPool::none});
    }
    bool takes_device() const override { return flow_.out.takes_device; }
    void push_from_device(const Tag& tag, const std::byte* data, std::size_t bytes) override {
        enqueue({tag, data, static_cast<uint32_t>(bytes), CellPool::none, true});
    }
    bool drained() override { return all_sent() || wire_->health(flow_) != Code::ok; }
    bool all_sent() override { return flow_.out.sent.load(std::memory_order_seq_cst) >= borrowed_; }
    void cancel() override {
        flow_.out.staging.give(std::exchange(reserved_, CellPool::none));
        if (!drained()) wire_->cancel_sends(flow_);
        borrowed_ = 0;
    }
    void arm(bool on) override {
        flow_.out.sleeper.set_sleeping(on);
        if (std::exchange(armed_, on) != on) wire_->arm(on);
    }
    Code health() const override { return no_memory_ ? Code::no_memory : wire_->health(flow_); }

private:
    void enqueue(const SendQueue::QueuedMessage& message);

    const std::shared_ptr<Wire> wire_;
    Flow& flow_;
    // Past the last message whose memory the wire may still read: it is free again once `sent` has
    // come this far.
    uint64_t borrowed_ = 0;
    int reserved_ = CellPool::none;
    std::size_t reserved_bytes_ = 0;
    bool no_memory_ = false;
    bool armed_ = false;
};

template <typename Wire, typename Flow>
std::byte* FlowSender<Wire, Flow>::reserve(std::size_t bytes) {
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

// Messages in the channel's own cells count as borrowed too. Otherwise the operation could end
// before they were sent, and no thread would send the rest.
template <typename Wire, typename Flow>
void FlowSender<Wire, Flow>::enqueue(const SendQueue::QueuedMessage& message) {
    SendQueue& out = flow_.out;
    const uint64_t position = out.pushed.load(std::memory_order_relaxed);
    assert(position < out.allowed.load(std::memory_order_relaxed));
    out.at(position) = message;
    borrowed_ = position + 1;
    // Pairs with the owner's load of `pushed`: the message is visible before the count.
    out.pushed.store(position + 1, std::memory_order_seq_cst);
    wire_->schedule_send(flow_);
}

}  // namespace tutti
