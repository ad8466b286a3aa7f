// An engine's outgoing direction: which flow is next, and handing its messages to the library.
#pragma once

#include "fabric/peers.h"
#include "transport/posted/late_credits.h"

namespace tutti::fabric {

/// Flows send in turns, each to its peer until the library has no room for that one. A message
/// counts as sent, in the order of its flow, when the library has let go of it; the lane may send
/// on when the peer has given the credit and the message before counts.
class Outgoing {
public:
    Outgoing(EnginePort& port, PeerTable& peers, ReadyList<Flow>& ready, const SleeperWaker& waker)
        : port_(port), peers_(peers), ready_(ready), waker_(waker) {}

    /// Sends a flow's next message. True: it wants another turn.
    bool send_next(Flow& flow);
    /// Hands over what is queued. A peer that takes nothing, or is not there yet, holds up no
    /// other.
    void send_ready();
    /// The library has given a message back, gone or not.
    void complete(Flow& flow, uint64_t position, bool gone);
    /// False: the peer did not owe them.
    bool handle_credits(Flow& flow, uint32_t credits);
    /// False: it has sent more than it may.
    bool add_late_credit(const ChannelId& id) { return late_credits_.add(id); }

    /// Messages are sent from copies from here on, as far as the library can be told of them, and
    /// does not move them out of a GPU's memory. False: there is no memory for copies.
    bool copy_unsent(Flow& flow);
    /// Whether the library still has to read the caller's memory.
    static bool borrows(Flow& flow);

private:
    bool send_message(Flow& flow);
    bool send_credits(Flow& flow);
    void send_late_credits();
    void copy_begun(Flow& flow, uint64_t position);

    EnginePort& port_;
    PeerTable& peers_;
    ReadyList<Flow>& ready_;
    const SleeperWaker& waker_;
    LateCredits late_credits_;
    std::vector<Flow*> held_up_;  // of busy peers, while the others have their turn
};

}  // namespace tutti::fabric
