// One channel on one port, both directions.
#pragma once

#include "fabric/header.h"
#include "transport/posted/flow.h"

namespace tutti::fabric {

struct Flow;
struct FlatStream;

/// A rank as one port knows it. Of the port's owner, but for health.
struct Peer {
    explicit Peer(Rank in_rank) : rank(in_rank) {}
    // hello: has been said; ready: it knows how to answer; gone: nothing more goes there.
    enum class State : uint8_t { unknown, hello, ready, gone };
    // What is to be said besides data, as bits.
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
    std::size_t opened = 0;           // channels of ours to it
    uint64_t busy_in = 0;             // the poll since which the library has had no room for it
    std::atomic<std::size_t> unread_bytes{0};  // of its large messages, in cells
};

struct ReceiveQueue : ReceiveCounts {
    /// empty → announced → fetching → whole → spent → empty; a payload that came along goes to
    /// whole at once, and to announced only what waits for the lane. The lane makes it spent, the
    /// owner everything else.
    enum class State : uint8_t { empty, announced, fetching, whole, spent };
    struct Slot {
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

    std::array<Slot, credits_per_channel> slots;
    uint64_t reclaimed = 0;  // the owner's: places that are empty again
    CellPool cells;
    Sleeper sleeper;
    bool live = false;                 // there is a Receiver; without one, messages are dropped
    bool told = false;                 // of: it is announced once
    std::atomic<bool> patient{false};  // the lane says where it wants what is announced
    Offer offer;

    Slot& at(uint64_t position) { return slots[position % credits_per_channel]; }
};

struct Flow {
    Flow(Peer& in_peer, uint32_t in_comm, uint16_t in_lane)
        : peer(in_peer), comm(in_comm), lane(in_lane) {
        for (ReceiveQueue::Slot& slot : in.slots) slot.flow = this;
        for (Sent& one : under_way) one.flow = this;
    }
    Peer& peer;
    const uint32_t comm;
    const uint16_t lane;
    SendQueue out;
    ReceiveQueue in;

    // What the library still has of the outgoing messages, by position; the owner's.
    struct Sent {
        Flow* flow = nullptr;
        uint64_t position = 0;
        bool done = false;
        bool lost = false;  // and its peer with it
    };
    std::array<Sent, credits_per_channel> under_way;
    uint64_t granted = credits_per_channel;  // by the peer; allowed is less while sends are pending
    bool open_due = false;                   // the peer must be told that there is a sender
    bool ours = false;                       // counted in Peer::opened
    std::atomic<FlatStream*> flat{nullptr};  // of whose stream it is a channel; the owner writes

    std::atomic<bool> ready{false};
    Flow* next_ready = nullptr;
};

}  // namespace tutti::fabric
