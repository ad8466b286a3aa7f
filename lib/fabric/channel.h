// The two halves of a fabric's channel: a lane's side of a flow.
#pragma once

#include "fabric/engine.h"
#include "transport/posted/flow_sender.h"

namespace tutti::fabric {

using FabricSender = FlowSender<FabricEngine, Flow>;

class FabricReceiver final : public Receiver {
public:
    FabricReceiver(std::shared_ptr<FabricEngine> engine, Flow& flow)
        : engine_(std::move(engine)), flow_(flow) {}
    ~FabricReceiver() override;

    void offer(const Tag& tag, std::byte* where, std::size_t bytes) override {
        put_offer(tag, where, bytes, false);
    }
    void offer_on_device(const Tag& tag, std::byte* where, std::size_t bytes) override {
        flow_.in.patient.store(true, std::memory_order_relaxed);
        put_offer(tag, where, bytes, true);
    }
    PeekedMessage peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override { engine_->cancel_receives(flow_); }
    void arm(bool on) override;
    Code health() const override;

private:
    using State = ReceiveQueue::State;
    void put_offer(const Tag& tag, std::byte* where, std::size_t bytes, bool on_device);

    const std::shared_ptr<FabricEngine> engine_;
    Flow& flow_;
    bool armed_ = false;
};

}  // namespace tutti::fabric
