// The two halves of a fabric's channel: a lane's side of a flow.
#pragma once

#include "fabric/engine.h"
#include "transport/posted/flow_receiver.h"
#include "transport/posted/flow_sender.h"

namespace tutti::fabric {

using FabricSender = FlowSender<FabricEngine, Flow>;

class FabricReceiver final : public FlowReceiver<FabricEngine, Flow> {
public:
    using FlowReceiver::FlowReceiver;
    void offer(const Tag& tag, std::byte* where, std::size_t bytes) override {
        put_offer(tag, where, bytes, false);
    }
    void offer_on_device(const Tag& tag, std::byte* where, std::size_t bytes) override {
        flow_.in.patient.store(true, std::memory_order_relaxed);
        put_offer(tag, where, bytes, true);
    }
    PeekedMessage peek(const Tag& expected, std::size_t bytes) override {
        if (flow_.in.is_announced()) wire_->place_next(flow_);
        return FlowReceiver::peek(expected, bytes);
    }

private:
    using State = ReceiveQueue::State;
    void put_offer(const Tag& tag, std::byte* where, std::size_t bytes, bool on_device) {
        ReceiveQueue& in = flow_.in;
        if (!in.offer.withdraw() || !where) return;
        const uint64_t position = in.released.load(std::memory_order_relaxed);
        const State now = in.at(position).state.load(std::memory_order_acquire);
        if (now == State::fetching || now == State::whole) return;
        in.offer.put(tag, where, bytes, position, on_device);
        // Pairs with the owner's second take of the offer, after it has set the message's state to
        // announced.
        if (in.is_announced()) wire_->place_next(flow_);
    }
};

}  // namespace tutti::fabric
