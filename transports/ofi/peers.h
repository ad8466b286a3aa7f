// The peers that a port knows.
#pragma once

#include <memory>
#include <vector>

#include "transports/ofi/operations.h"

namespace tutti::ofi {

/// A peer stays as long as the table, because operations point to it. At most one of each rank is
/// present: the one whose port the engine has named last, or that wrote first.
class OfiPeerTable {
public:
    OfiPeerTable(const Objects& objects, Rank rank, Rank size);

    /// This port's number, which peers put into what they send here.
    uint64_t port() const { return port_; }
    /// nullptr: nothing is known of that rank yet.
    OfiPeer* find(Rank rank) const;
    const std::vector<OfiPeer*>& by_rank() const { return by_rank_; }
    /// The peer at an address that it has published (this port's own is OfiPort::address()).
    Result<> connect(Rank rank, ByteView address);
    /// The address that a peer gives itself, which counts if the engine has named none.
    Result<> take_address(OfiPeer& peer, ByteView where);
    /// The peer that has sent a message; nullptr if it is not one of ours, or not wanted.
    OfiPeer* sender_of(const Prefix& prefix);
    Prefix prefix_to(const OfiPeer& peer, Kind kind, uint64_t number, uint64_t bytes) const {
        return {.kind = kind,
                .source_rank = rank_,
                .source = port_,
                .target = peer.port,
                .number = number,
                .bytes = bytes};
    }
    /// A message to that peer has left. sockets: there is a connection now.
    void reach(OfiPeer& peer, bool sockets);

private:
    OfiPeer& add(Rank rank, uint64_t port);
    Result<fi_addr_t> insert(const OfiPeer& peer, ByteView where);

    const Objects& objects_;
    const Rank rank_;
    const uint64_t port_;
    std::vector<std::unique_ptr<OfiPeer>> peers_;  // all there ever were
    std::vector<OfiPeer*> by_rank_;                // the present ones
};

}  // namespace tutti::ofi
