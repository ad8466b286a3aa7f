// One channel on one connection, both directions: the queues between the lane's thread and
// whichever thread owns the connection. Each queue has one producer and one consumer.
//
// Positions count messages since the beginning and are kept modulo the number of credits, which
// bounds every queue: a message is only sent against a credit, and a credit only comes back when
// the receiver has released the message's place.
#pragma once

#include <array>
#include <atomic>

#include "transports/tcp/cells.h"

namespace tutti::tcp {

/// Which thread sleeps until this half of the channel moves; nullptr: none.
class Sleeper {
public:
    void announce(bool on) { thread_.store(on ? self() : nullptr, std::memory_order_seq_cst); }
    /// True if another thread sleeps and must be woken. The caller has published first, both
    /// sequentially consistent: either we see the sleeper here, or it sees what was published.
    bool wants_waking() {
        const void* thread = thread_.load(std::memory_order_seq_cst);
        return thread != nullptr && thread != self();
    }

private:
    static const void* self() {
        static thread_local char identity;
        return &identity;
    }
    std::atomic<const void*> thread_{nullptr};
};

struct SendQueue {
    struct Message {
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;  // none: the caller's memory
    };
    // The lane's.
    std::atomic<uint64_t> pushed{0};
    // The connection owner's. begun ≥ sent: the header is made; sent: the kernel has all of it.
    uint64_t begun = 0;
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> allowed{credits_per_channel};

    std::array<Message, credits_per_channel> messages;
    CellPool staging;
    Sleeper sleeper;
    std::atomic<bool> open{false};  // there is a Sender

    Message& at(uint64_t position) { return messages[position % credits_per_channel]; }
};

struct ReceiveQueue {
    struct Message {
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;  // none: memory that was offered
    };
    enum class Offer : uint8_t { none, open, taken };

    // The connection owner's: headers seen, messages complete, credits given back.
    std::atomic<uint64_t> begun{0}, arrived{0}, returned{0};
    // The lane's.
    std::atomic<uint64_t> released{0};

    std::array<Message, credits_per_channel> messages;
    CellPool cells;
    Sleeper sleeper;
    bool open = false;  // the peer has opened it
    bool live = false;  // there is a Receiver; without one, messages are dropped

    // Where the message at offer_position is wanted. Written by the lane while the state is none,
    // read by the owner after it has made the state taken.
    std::atomic<Offer> offer{Offer::none};
    Tag offer_tag;
    std::byte* offer_data = nullptr;
    std::size_t offer_bytes = 0;
    uint64_t offer_position = 0;

    Message& at(uint64_t position) { return messages[position % credits_per_channel]; }

    /// Credits travel alone when half of them are owed, or when the sender has none left. Lane and
    /// owner both ask after publishing `released` and `begun`, so one of them sees that it is time.
    bool credits_due() const {
        const uint64_t given = returned.load(std::memory_order_relaxed);
        const uint64_t owed = released.load(std::memory_order_seq_cst) - given;
        const uint64_t used = begun.load(std::memory_order_seq_cst) - given;
        return owed >= credits_per_channel / 2 || (owed > 0 && used >= credits_per_channel);
    }
};

struct Flow {
    Flow(uint32_t in_comm, uint16_t in_lane) : comm(in_comm), lane(in_lane) {}
    const uint32_t comm;
    const uint16_t lane;
    SendQueue out;
    ReceiveQueue in;
    bool open_due = false;  // the peer must be told that there is a sender; the owner's

    // Links the flows that have something to send; the flag says that it is in the list.
    std::atomic<bool> ready{false};
    Flow* next_ready = nullptr;
};

}  // namespace tutti::tcp
