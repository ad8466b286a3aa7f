// An engine's incoming direction: messages to their places. Everything a peer sends is checked
// before it is used.
#pragma once

#include "fabric/peers.h"
#include "fabric/slot_board.h"
#include "transport/peer_limits.h"

namespace tutti::fabric {

/// A message lies where the lane wants it, where the library has it, or in a cell of its flow. Its
/// slot is whole once nothing writes there any more.
class Incoming {
public:
    using ReceiveSlot = ReceiveQueue::ReceiveSlot;
    Incoming(EnginePort& port, PeerTable& peers, ReadyList<Flow>& ready, const SleeperWaker& waker,
             const PeerLimits& limits)
        : port_(port), peers_(peers), ready_(ready), waker_(waker), limits_(limits) {}

    /// A data message. True: the library's arrival is kept.
    bool handle_data(Flow& flow, const Header& header, const Arrival& arrival);
    /// The message is whole, and the lane may have it.
    void finish(ReceiveSlot& slot);
    bool any_to_fetch() const { return !to_fetch_.empty(); }
    /// Fetches what has its place, as far as the library has room.
    void fetch_placed();
    /// For the lane, whose next message waits: to where it is offered, or else to a cell.
    void place_next(Flow& flow);
    /// There is no receiver any more.
    void close(Flow& flow);
    /// Whether a message is arriving, or is to be fetched.
    bool is_arriving(const Flow& flow) const;

    /// The rest of a message that is arriving in the caller's memory goes to a cell, if the library
    /// can be told.
    void fetch_to_cell(ReceiveSlot& slot);
    /// Copies a whole message from the caller's memory. False: there is no memory for that.
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
