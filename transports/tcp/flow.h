// One channel on one connection, both directions.
#pragma once

#include "transport/posted/flow.h"
#include "transports/tcp/frame.h"

namespace tutti::tcp {

struct ReceiveQueue : ReceiveCounts {
    struct Message {
        Tag tag;
        const std::byte* data = nullptr;
        uint32_t bytes = 0;
        int cell = CellPool::none;  // none: memory that was offered
    };

    std::atomic<uint64_t> arrived{0};  // messages complete; the connection owner's
    std::array<Message, credits_per_channel> messages;
    CellPool cells;
    Sleeper sleeper;
    bool open = false;  // the peer has opened it
    bool live = false;  // there is a Receiver; without one, messages are dropped
    Offer offer;        // for the next message that the lane has not seen

    Message& at(uint64_t position) { return messages[position % credits_per_channel]; }
};

struct Flow {
    Flow(uint32_t in_comm, uint16_t in_lane) : comm(in_comm), lane(in_lane) {}
    const uint32_t comm;
    const uint16_t lane;
    SendQueue out;
    ReceiveQueue in;
    bool open_due = false;  // the peer must be told that there is a sender; the owner's
    bool ours = false;      // this rank has opened it; likewise

    std::atomic<bool> ready{false};
    Flow* next_ready = nullptr;
};

}  // namespace tutti::tcp
