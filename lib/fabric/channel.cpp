#include "fabric/channel.h"

#include <utility>

namespace tutti::fabric {

FabricReceiver::~FabricReceiver() {
    FabricReceiver::cancel();
    FabricReceiver::arm(false);
    engine_->close_receiver(flow_);
}

void FabricReceiver::arm(bool on) {
    flow_.in.sleeper.set_sleeping(on);
    if (std::exchange(armed_, on) != on) engine_->arm(on);
}

void FabricReceiver::put_offer(const Tag& tag, std::byte* where, std::size_t bytes,
                               bool on_device) {
    ReceiveQueue& in = flow_.in;
    if (!in.offer.withdraw() || !where) return;
    const uint64_t position = in.released.load(std::memory_order_relaxed);
    const State now = in.at(position).state.load(std::memory_order_acquire);
    if (now == State::fetching || now == State::whole) return;
    in.offer.put(tag, where, bytes, position, on_device);
    // Pairs with the owner's look at the offer after it has said that the message waits.
    if (in.at(position).state.load(std::memory_order_seq_cst) == State::announced)
        engine_->place_next(flow_);
}

Receiver::PeekedMessage FabricReceiver::peek(const Tag& expected, std::size_t bytes) {
    for (;;) {
        const uint64_t position = flow_.in.released.load(std::memory_order_relaxed);
        const ReceiveQueue::ReceiveSlot& slot = flow_.in.at(position);
        // Spent: the place of a message eight before, whose credit has not been given back.
        const State now = slot.state.load(std::memory_order_acquire);
        if (now == State::announced) engine_->place_next(flow_);
        if (now != State::whole) return {};
        switch (match(expected, slot.tag)) {
            case TagMatch::stale:
                release();
                continue;
            case TagMatch::different:
                return {slot.data, slot.tag};
            case TagMatch::equal:
                break;
        }
        if (slot.bytes == bytes) return {slot.data, slot.tag};
        engine_->reject(flow_.peer,
                        fmt::format("it sent {} bytes where its call has {}", slot.bytes, bytes));
        release();
    }
}

void FabricReceiver::release() {
    ReceiveQueue& in = flow_.in;
    const uint64_t position = in.released.load(std::memory_order_relaxed);
    // Before the count: until the owner has reclaimed it, it must not look like the next message.
    in.at(position).state.store(State::spent, std::memory_order_relaxed);
    in.released.store(position + 1, std::memory_order_seq_cst);
    if (in.credits_due()) engine_->schedule_send(flow_);
}

Code FabricReceiver::health() const {
    ReceiveQueue& in = flow_.in;
    const uint64_t position = in.released.load(std::memory_order_relaxed);
    const bool whole = in.at(position).state.load(std::memory_order_acquire) == State::whole;
    return whole ? Code::ok : engine_->health(flow_);
}

}  // namespace tutti::fabric
