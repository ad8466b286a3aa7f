// The channels that bind asks for: a communicator makes each at its first use.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/result.h"
#include "transport/channel.h"
#include "transport/transport.h"

namespace tutti {

/// The receiving half of one (peer, lane). The sender chooses the transport, so the slot is empty
/// until the peer has opened its half; until then a waiting lane finds no message.
struct ReceiverSlot {
    std::atomic<Receiver*> receiver{nullptr};
    Rank peer = nobody;
};

struct OpenSender {
    Sender* sender = nullptr;
    const Capabilities* capabilities = nullptr;
};

class ChannelProvider {
public:
    virtual ~ChannelProvider() = default;
    /// Opens the sending half if it is not open yet; blocks at most until the deadline.
    virtual Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline deadline) = 0;
    virtual ReceiverSlot* receiver(Rank peer, uint16_t lane) = 0;
};

}  // namespace tutti
