// One channel on one port, both directions.
#pragma once

#include <algorithm>
#include <utility>

#include "fabric/header.h"
#include "transport/posted/flow.h"

namespace tutti::fabric {

struct Flow;
struct SlotStream;

/// A rank as one port knows it. Only the port's owner uses it, except health.
struct Peer {
    explicit Peer(Rank in_rank) : rank(in_rank) {}
    // hello: this rank has sent its hello; ready: the peer can answer; gone: nothing more is sent
    // to it.
    enum class State : uint8_t { unknown, hello, ready, gone };
    // Control messages that the owner must still send to the peer, as bits.
    enum Due : uint8_t { hello_due = 1, welcome_due = 2, bye_due = 4, farewell_due = 8 };

    const Rank rank;
    std::atomic<Code> health{Code::ok};
    State state = State::unknown;
    uint8_t due = 0;
    bool nonce_known = false, connected = false;
    bool bye_sent = false, bye_received = false, farewell_received = false, leaving = false;
    uint64_t nonce = 0;
    uint32_t sent = 0, received = 0;  // data messages and contributions
    uint32_t last = 0;                // the peer's count of its messages when it said bye
    bool takes_device = false;        // valid once the peer is connected
    uint64_t busy_in = 0;             // the number of the poll since which the library has had no
                                      // room for it
    std::atomic<std::size_t> unread_bytes{0};  // bytes of its large messages, in cells
};

struct ReceiveQueue : ReceiveCounts {
    /// empty → announced → fetching → whole → spent → empty. A payload that arrives with its header
    /// becomes whole at once; only a message that waits for the lane becomes announced. The lane
    /// sets spent, the owner sets all other states.
    enum class State : uint8_t { empty, announced, fetching, whole, spent };
    struct ReceiveSlot {
        std::atomic<State> state{State::empty};
        Flow* flow = nullptr;
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;
        void* hold = nullptr;     // the library's handle, until the place is reclaimed
        std::byte* to = nullptr;  // the memory that the library writes to
        bool begun = false;       // fetching: the library has the request
        bool offered = false;     // `to` or `data` is the lane's memory
        bool on_device = false;   // the lane's memory is a GPU's
    };

    std::array<ReceiveSlot, credits_per_channel> slots;
    uint64_t reclaimed = 0;  // the owner's: count of places that are empty again
    CellPool cells;
    Sleeper sleeper;
    bool live = false;                 // there is a Receiver; without one, the owner drops messages
    bool told = false;                 // announced to the transport, which happens once
    std::atomic<bool> patient{false};  // the lane says where it wants announced messages
    Offer offer;

    ReceiveSlot& at(uint64_t position) { return slots[position % credits_per_channel]; }

    // For the lane.
    const ReceiveSlot* front() {
        const ReceiveSlot& slot = at(released.load(std::memory_order_relaxed));
        // If the state is spent, the slot holds the message eight positions before, whose credit
        // has not been returned.
        return slot.state.load(std::memory_order_acquire) == State::whole ? &slot : nullptr;
    }
    bool is_announced() {
        const ReceiveSlot& slot = at(released.load(std::memory_order_relaxed));
        return slot.state.load(std::memory_order_seq_cst) == State::announced;
    }
    /// Sets spent before it counts the message as released: until the owner reclaims the place, it
    /// must not look like the next message.
    void leave_front() {
        at(released.load(std::memory_order_relaxed))
            .state.store(State::spent, std::memory_order_relaxed);
    }

    // For the owner: releases all arrived messages of a channel without a receiver.
    void drop() {
        uint64_t position = released.load(std::memory_order_relaxed);
        while (at(position).state.load(std::memory_order_relaxed) == State::whole)
            at(position++).state.store(State::spent, std::memory_order_relaxed);
        released.store(position, std::memory_order_seq_cst);
    }
    /// Reclaims the places of messages that the lane has released.
    void reclaim(Port& port) {
        const uint64_t done = released.load(std::memory_order_seq_cst);
        for (; reclaimed < done; ++reclaimed) {
            ReceiveSlot& slot = at(reclaimed);
            cells.give(slot.cell);
            if (slot.hold) port.release(std::exchange(slot.hold, nullptr));
            slot.state.store(State::empty, std::memory_order_relaxed);
        }
    }
    /// Gives all buffers back to the library, because the flow is deleted.
    void release_holds(Port& port) {
        for (ReceiveSlot& slot : slots)
            if (slot.hold) port.release(std::exchange(slot.hold, nullptr));
    }
    /// Whether every announced message is here whole.
    bool is_complete() const {
        return std::none_of(slots.begin(), slots.end(), [](const ReceiveSlot& slot) {
            const State state = slot.state.load(std::memory_order_relaxed);
            return state == State::fetching || state == State::announced;
        });
    }
};

struct Flow : PostedFlow<Flow> {
    Flow(const ChannelId& in_id, Peer& in_peer) : PostedFlow(in_id), peer(in_peer) {
        for (ReceiveQueue::ReceiveSlot& slot : in.slots) slot.flow = this;
        for (Sent& one : under_way) one.flow = this;
        in.cells.count_in(peer.unread_bytes);
    }
    Peer& peer;
    ReceiveQueue in;

    // Outgoing messages that the library still has, by position; the owner's.
    struct Sent {
        Flow* flow = nullptr;
        uint64_t position = 0;
        bool done = false;
        bool lost = false;  // the peer was lost before the message was sent
    };
    std::array<Sent, credits_per_channel> under_way;
    std::atomic<SlotStream*> flat{nullptr};  // the stream that this channel belongs to; written by
                                             // the owner
};

}  // namespace tutti::fabric
