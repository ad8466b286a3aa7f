// The receiving half of a posted channel: a lane's side of a flow.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "transport/posted/flow.h"

namespace tutti {

/// Wire: as FlowSender's, and also cancel_receives, close_receiver and reject. The flow's incoming
/// queue `in` has front(), the lane's next message if it is whole, and leave_front(), which gives
/// up that message's memory. Each engine's own subclass implements offers.
template <typename Wire, typename Flow>
class FlowReceiver : public Receiver {
public:
    FlowReceiver(std::shared_ptr<Wire> wire, Flow& flow) : wire_(std::move(wire)), flow_(flow) {}
    ~FlowReceiver() override {
        FlowReceiver::cancel();
        FlowReceiver::arm(false);
        wire_->close_receiver(flow_);
    }

    PeekedMessage peek(const Tag& expected, std::size_t bytes) override;
    void release() override {
        auto& in = flow_.in;
        in.leave_front();
        in.released.store(in.released.load(std::memory_order_relaxed) + 1,
                          std::memory_order_seq_cst);
        if (in.credits_due()) wire_->schedule_send(flow_);
    }
    void cancel() override { wire_->cancel_receives(flow_); }
    void arm(bool on) override {
        flow_.in.sleeper.set_sleeping(on);
        if (std::exchange(armed_, on) != on) wire_->arm(on);
    }
    Code health() const override { return flow_.in.front() ? Code::ok : wire_->health(flow_); }

protected:
    const std::shared_ptr<Wire> wire_;
    Flow& flow_;

private:
    bool armed_ = false;
};

template <typename Wire, typename Flow>
Receiver::PeekedMessage FlowReceiver<Wire, Flow>::peek(const Tag& expected, std::size_t bytes) {
    while (const auto* const message = flow_.in.front()) {
        if (!message->tag.is_stale(expected)) {
            if (message->bytes == bytes || message->tag != expected)
                return {message->data, message->tag};
            wire_->reject(flow_, fmt::format("it sent {} bytes where its call has {}",
                                             message->bytes, bytes));
        }
        release();
    }
    return {};
}

}  // namespace tutti
