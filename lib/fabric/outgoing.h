// An engine's outgoing direction: it chooses the next flow, and hands its messages to the library.
#pragma once

#include "fabric/peers.h"
#include "transport/posted/late_credits.h"

namespace tutti::fabric {

/// Flows send in turns, each to its peer until the library has no room for that peer. A flow's
/// messages count as sent in order, once the library has given them back. The lane may send another
/// message when the peer has returned a credit and the place's previous message counts as sent.
class Outgoing {
public:
    Outgoing(EnginePort& port, PeerTable& peers, ReadyList<Flow>& ready, const SleeperWaker& waker)
        : port_(port), peers_(peers), ready_(ready), waker_(waker) {}

    /// Sends a flow's next message. True: the flow has more to send.
    bool send_next(Flow& flow);
    /// Hands over all queued messages. A peer that receives nothing, or is not there yet, does not
    /// delay other peers.
    void send_ready();
    /// The library has given a message back. gone: it was sent.
    void complete(Flow& flow, uint64_t position, bool gone);
    /// False: the peer did not owe them.
    bool handle_credits(Flow& flow, uint32_t credits);
    /// False: the peer has sent more than it may.
    bool add_late_credit(const ChannelId& id) { return late_credits_.add(id); }

    /// From here on messages are sent from copies. Exceptions: messages that the library has and
    /// cannot be given a copy of, and messages in a GPU's memory. False: there is no memory for
    /// copies.
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
    std::vector<Flow*> held_up_;  // of busy peers, while other flows have their turn
};

}  // namespace tutti::fabric
