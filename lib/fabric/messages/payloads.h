// Payloads sent from the caller's memory into the caller's memory, without a copy.
#pragma once

#include "fabric/messages/operations.h"
#include "fabric/messages/queue.h"
#include "fabric/messages/slots.h"

namespace tutti::fabric {

/// All announced or unfinished payloads, in both directions.
struct Payloads {
    Slots<PayloadOut> outgoing;
    Slots<PayloadIn> incoming;
    Queue<uint64_t> granted;  // numbers of outgoing payloads for which the library had no room yet

    bool any() const { return outgoing.taken() + incoming.taken() > 0; }
    /// Whether an announced or unfinished payload needs an answer of that peer.
    bool wait_for(const MessagePeer& peer) {
        bool waits = false;
        outgoing.each([&](const PayloadOut& out) { waits |= out.peer == &peer; });
        incoming.each([&](const PayloadIn& in) {
            waits |= in.peer == &peer && in.state == PayloadIn::State::fetching;
        });
        return waits;
    }
};

}  // namespace tutti::fabric
