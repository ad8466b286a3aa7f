// Payloads that go from the caller's memory to the caller's memory.
#pragma once

#include "fabric/messages/operations.h"
#include "fabric/messages/queue.h"
#include "fabric/messages/slots.h"

namespace tutti::fabric {

/// All that are announced or under way, in both directions.
struct Payloads {
    Slots<PayloadOut> outgoing;
    Slots<PayloadIn> incoming;
    Queue<uint64_t> granted;  // outgoing ones for which the library had no room yet, by number

    bool any() const { return outgoing.taken() + incoming.taken() > 0; }
    /// Whether something happens when that peer says so.
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
