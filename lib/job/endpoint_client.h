// The endpoint's view of a communicator.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "control/control_message.h"
#include "job/connecting/connector.h"
#include "transport/channel.h"

namespace tutti {

/// A communicator: the endpoint tells it about its peers, and the service thread drives it.
class EndpointClient {
public:
    virtual ~EndpointClient() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    /// A channel that open_later() has asked for is about to be opened. False: it is not wanted any
    /// more. Else connected() follows with the result.
    virtual bool still_wanted(const ChannelId& id) = 0;
    virtual void connected(const ChannelId& id, Result<Opened> opened) = 0;
    virtual void handle_message(Rank from, const ControlMessage& message) = 0;
    /// accuser: the rank that reports the peer's silence, which proves no loss; the peer may be
    /// this rank. If accuser is nobody, the peer's process has ended. Called for each accuser.
    virtual void peer_lost(Rank peer, const std::string& cause, Rank accuser) = 0;
    /// That peer's process has ended, in order or not: no process listens at its address.
    virtual void unreachable(Rank peer) = 0;
    /// Drives non-blocking operations; false if there is none that the calling thread should drive.
    virtual bool drive(bool& moved) = 0;
    /// Called before and after the service thread sleeps on the data reactor. False: another thread
    /// owns a part of the work, so check again.
    virtual bool arm(bool on) = 0;
};

}  // namespace tutti
