// One channel on one connection, both directions.
#pragma once

#include "transport/posted/flow.h"
#include "transports/tcp/frame.h"

namespace tutti::tcp {

struct ReceiveQueue : ReceiveCounts {
    struct ArrivedMessage {
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;  // none: in the lane's offered memory
    };

    std::atomic<uint64_t> arrived{0};  // count of complete messages; the connection owner writes
    std::array<ArrivedMessage, credits_per_channel> messages;
    CellPool cells;
    Sleeper sleeper;
    bool open = false;  // the peer has opened the channel
    bool live = false;  // there is a Receiver; without one, the owner drops messages
    Offer offer;        // for the message after the last one that the lane has peeked at

    ArrivedMessage& at(uint64_t position) { return messages[position % credits_per_channel]; }
    // For the lane.
    ArrivedMessage& next() { return at(released.load(std::memory_order_relaxed)); }
    const ArrivedMessage* front() {
        return arrived.load(std::memory_order_seq_cst) == released ? nullptr : &next();
    }
    void leave_front() { cells.give(next().cell); }
    /// The owner releases all arrived messages of a channel without a receiver.
    void drop() {
        uint64_t position = released.load(std::memory_order_relaxed);
        for (; position < arrived.load(std::memory_order_relaxed); ++position)
            cells.give(at(position).cell);
        released.store(position, std::memory_order_seq_cst);
    }
};

struct Flow : PostedFlow<Flow> {
    /// unread_bytes: counts the bytes of large messages until they are read.
    Flow(const ChannelId& in_id, std::atomic<std::size_t>& unread_bytes) : PostedFlow(in_id) {
        in.cells.count_in(unread_bytes);
    }
    ReceiveQueue in;
    bool travelling = false;  // the last begun payload is not fully written; the owner's
};

}  // namespace tutti::tcp
