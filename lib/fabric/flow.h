// One channel on one port, both directions.
#pragma once

#include <algorithm>
#include <utility>

#include "fabric/header.h"
#include "transport/posted/flow.h"

namespace tutti::fabric {

struct Flow;
struct SlotStream;

/// A rank as one port knows it. Of the port's owner, but for health.
struct Peer {
    explicit Peer(Rank in_rank) : rank(in_rank) {}
    // hello: has been said; ready: it knows how to answer; gone: nothing more goes there.
    enum class State : uint8_t { unknown, hello, ready, gone };
    // Control messages that the owner still has to send to the peer, as bits.
    enum Due : uint8_t { hello_due = 1, welcome_due = 2, bye_due = 4, farewell_due = 8 };

    const Rank rank;
    std::atomic<Code> health{Code::ok};
    State state = State::unknown;
    uint8_t due = 0;
    bool nonce_known = false, connected = false;
    bool bye_sent = false, bye_received = false, farewell_received = false, leaving = false;
    uint64_t nonce = 0;
    uint32_t sent = 0, received = 0;  // data messages and contributions
    uint32_t last = 0;                // of them when it said bye
    bool takes_device = false;        // once it is connected
    uint64_t busy_in = 0;             // the poll since which the library has had no room for it
    std::atomic<std::size_t> unread_bytes{0};  // of its large messages, in cells
};

struct ReceiveQueue : ReceiveCounts {
    /// empty → announced → fetching → whole → spent → empty; a payload that came along goes to
    /// whole at once, and to announced only what waits for the lane. The lane makes it spent, the
    /// owner everything else.
    enum class State : uint8_t { empty, announced, fetching, whole, spent };
    struct ReceiveSlot {
        std::atomic<State> state{State::empty};
        Flow* flow = nullptr;
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;
        void* hold = nullptr;     // the library's, until it is reclaimed
        std::byte* to = nullptr;  // where it is being fetched
        bool begun = false;       // fetching: the library has been told
        bool offered = false;     // lies in the lane's memory
        bool on_device = false;   // which is a GPU's
    };

    std::array<ReceiveSlot, credits_per_channel> slots;
    uint64_t reclaimed = 0;  // the owner's: places that are empty again
    CellPool cells;
    Sleeper sleeper;
    bool live = false;                 // there is a Receiver; without one, messages are dropped
    bool told = false;                 // of: it is announced once
    std::atomic<bool> patient{false};  // the lane says where it wants what is announced
    Offer offer;

    ReceiveSlot& at(uint64_t position) { return slots[position % credits_per_channel]; }

    // The lane's.
    const ReceiveSlot* front() {
        const ReceiveSlot& slot = at(released.load(std::memory_order_relaxed));
        // Spent: the place of a message eight before, whose credit has not been given back.
        return slot.state.load(std::memory_order_acquire) == State::whole ? &slot : nullptr;
    }
    bool is_announced() {
        const ReceiveSlot& slot = at(released.load(std::memory_order_relaxed));
        return slot.state.load(std::memory_order_seq_cst) == State::announced;
    }
    /// Before it counts as released: until the owner has reclaimed the place, it must not look like
    /// the next message.
    void leave_front() {
        at(released.load(std::memory_order_relaxed))
            .state.store(State::spent, std::memory_order_relaxed);
    }

    // The owner's.
    /// Releases all that has arrived, for a channel without a receiver.
    void drop() {
        uint64_t position = released.load(std::memory_order_relaxed);
        while (at(position).state.load(std::memory_order_relaxed) == State::whole)
            at(position++).state.store(State::spent, std::memory_order_relaxed);
        released.store(position, std::memory_order_seq_cst);
    }
    /// Takes back the places of what the lane has released.
    void reclaim(Port& port) {
        const uint64_t done = released.load(std::memory_order_seq_cst);
        for (; reclaimed < done; ++reclaimed) {
            ReceiveSlot& slot = at(reclaimed);
            cells.give(slot.cell);
            if (slot.hold) port.release(std::exchange(slot.hold, nullptr));
            slot.state.store(State::empty, std::memory_order_relaxed);
        }
    }
    /// The flow goes: the library has its buffers back.
    void release_holds(Port& port) {
        for (ReceiveSlot& slot : slots)
            if (slot.hold) port.release(std::exchange(slot.hold, nullptr));
    }
    /// Whether every message that has been announced is here whole.
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
        bool lost = false;  // and its peer with it
    };
    std::array<Sent, credits_per_channel> under_way;
    std::atomic<SlotStream*> flat{nullptr};  // of whose stream it is a channel; the owner writes
};

}  // namespace tutti::fabric
