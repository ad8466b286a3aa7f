// Connecting to other ranks over the transport that reaches them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "control/group.h"
#include "job/connecting/transport_set.h"
#include "job/records/peer_directory.h"
#include "transport/channel.h"
#include "transport/intrinsic.h"
#include "transport/transport.h"

namespace tutti {

/// A channel's sending half, and the transport that it goes over.
using Opened = std::pair<std::unique_ptr<Sender>, const Transport*>;

/// A communicator's intrinsic collectives, and their name. Without a group there are none.
struct JoinedIntrinsics {
    std::unique_ptr<IntrinsicGroup> group;
    std::string_view name;
};

/// Every channel goes over the first transport of the set that reaches its peer. It has no state of
/// its own, so any thread may call any function. Calls block at most until the deadline.
class Connector {
public:
    /// host: this rank's host id. streams: the number of each communicator's streams.
    Connector(Rank rank, std::string host, uint32_t streams, const TransportSet& transports,
              PeerDirectory& directory)
        : rank_(rank),
          streams_(streams),
          host_(std::move(host)),
          transports_(transports),
          directory_(directory) {}

    /// The sending half towards a peer, whose record was there when the job was complete.
    Result<Opened> open(const ChannelId& id, Deadline deadline) const;
    /// The collectives of the transport that carries everything in this group: none if this rank
    /// cannot join. Then no member may use them.
    JoinedIntrinsics join_intrinsics(const Group& group, bool one_host, Deadline deadline) const;
    /// Gives every transport the addresses of the job's other ranks, whose records are known.
    void introduce(Rank size, Deadline deadline) const;
    /// True if that rank is on another host and its control address is a loopback address, so that
    /// only ranks of its host reach it.
    bool hides(const PeerRecord& record, Deadline deadline) const;

private:
    Result<PeerAddress> find(const Transport& transport, Rank rank, Deadline deadline) const;
    bool reaches_any(std::size_t transports, const Group& group, Deadline deadline) const;

    const Rank rank_;
    const uint32_t streams_;
    const std::string host_;
    const TransportSet& transports_;
    PeerDirectory& directory_;
};

}  // namespace tutti
