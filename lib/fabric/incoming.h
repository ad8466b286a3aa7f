// An engine's incoming direction: it puts messages in their places. It checks everything that a
// peer sends before use.
#pragma once

#include "fabric/peers.h"
#include "fabric/slot_board.h"
#include "transport/peer_limits.h"

namespace tutti::fabric {

/// A message is in memory that the lane offered, in the library's buffer, or in a cell of its flow.
/// Its slot becomes whole once no thread and no device writes there any more.
class Incoming {
public:
    using ReceiveSlot = ReceiveQueue::ReceiveSlot;
    Incoming(EnginePort& port, PeerTable& peers, ReadyList<Flow>& ready, const SleeperWaker& waker,
             const PeerLimits& limits)
        : port_(port), peers_(peers), ready_(ready), waker_(waker), limits_(limits) {}

    /// Handles a data message. True: keeps the library's arrival.
    bool handle_data(Flow& flow, const Header& header, const Arrival& arrival);
    /// Marks the message as whole, so that the lane may read it.
    void finish(ReceiveSlot& slot);
    bool any_to_fetch() const { return !to_fetch_.empty(); }
    /// Fetches messages that have their place, as far as the library has room.
    void fetch_placed();
    /// For a lane that waits for its next message: fetches it into the offered memory, or else into
    /// a cell.
    void place_next(Flow& flow);
    /// Call when the receiver is destroyed.
    void close(Flow& flow);
    /// Whether a message is arriving, or is to be fetched.
    bool is_arriving(const Flow& flow) const;

    /// Redirects the rest of a message that is arriving in the caller's memory to a cell, if the
    /// library supports that.
    void fetch_to_cell(ReceiveSlot& slot);
    /// Copies a whole message out of the caller's memory. False: there is no memory for the copy.
    bool save_offered(ReceiveSlot& slot);

private:
    using State = ReceiveQueue::State;

    bool place(Flow& flow, uint64_t position, const Arrival& arrival);
    bool place_announced(Flow& flow, uint64_t position, const Arrival& arrival);
    bool copy(Flow& flow, uint64_t position, const Arrival& arrival);
    static std::byte* unless_on_device(ReceiveQueue& in, std::byte* offered);
    bool find_place(ReceiveSlot& slot, std::byte* offered);
    bool take_cell(ReceiveSlot& slot);
    bool fetch(ReceiveSlot& slot);

    EnginePort& port_;
    PeerTable& peers_;
    ReadyList<Flow>& ready_;
    const SleeperWaker& waker_;
    const PeerLimits limits_;
    std::vector<ReceiveSlot*> to_fetch_;
};

}  // namespace tutti::fabric
