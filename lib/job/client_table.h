// The communicators of an endpoint.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/id_set.h"
#include "control/early_channels.h"
#include "control/early_messages.h"
#include "job/endpoint_client.h"
#include "transport/peer_limits.h"

namespace tutti {

/// Every channel and every piece of news is given to the communicator that it is for, kept until
/// that one is added, or dropped because it was removed. Any thread may call anything.
///
/// The table's lock guards all its data, and is held while a client is called: after remove() it is
/// called no more. It is recursive, since clients call back, and it is the endpoint's first lock:
/// whoever holds it may take any other, never the other way round.
class ClientTable {
public:
    using Lock = std::unique_lock<std::recursive_mutex>;
    Lock hold() { return Lock(mutex_); }
    /// Not held if a client is still being called at the deadline.
    Lock hold(Deadline deadline);

    /// Gives the client what came before it. True if that were channels.
    bool add(uint32_t comm, EndpointClient* client);
    /// True if it was the last one.
    bool remove(uint32_t comm);
    bool empty();

    enum class Taken : uint8_t { given, kept_or_dropped, too_many };
    /// A peer has opened a channel. too_many: of that peer; the channel is gone.
    Taken opened(const ChannelId& id, std::unique_ptr<Receiver> receiver);
    bool still_wanted(const ChannelId& id);
    void connected(const ChannelId& id, Result<Opened> opened);
    /// keep: for a communicator that this rank may still make.
    void handle_message(Rank from, const ControlMessage& message, bool keep);
    void peer_lost(Rank peer, const std::string& cause);
    void unreachable(Rank peer);

    /// Drives what no thread waits for, on all communicators. False: nothing is under way there.
    bool drive(bool& moved);
    /// Before and after a sleep. False: look once more.
    bool arm(bool on);

private:
    EndpointClient* find(uint32_t comm) const;

    std::recursive_mutex mutex_;
    std::map<uint32_t, EndpointClient*> clients_;
    IdSet removed_;  // clients that were: what still comes for them is dropped
    EarlyChannels early_channels_{PeerLimits{}.early_channels};
    EarlyMessages early_messages_;
};

}  // namespace tutti
