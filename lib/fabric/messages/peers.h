// The peers that a message port knows.
#pragma once

#include <memory>
#include <vector>

#include "fabric/messages/operations.h"

namespace tutti::fabric {

/// A peer stays as long as the table, because operations point to it. At most one peer of each rank
/// is present: the one whose port the engine named last, or that wrote first.
class MessagePeers {
public:
    MessagePeers(Rank rank, Rank size);

    /// This port's number, which peers put into every message to it.
    uint64_t port() const { return port_; }
    bool has_rank(Rank rank) const {
        return rank >= 0 && static_cast<std::size_t>(rank) < by_rank_.size();
    }
    /// nullptr: no peer of that rank is known yet.
    MessagePeer* find(Rank rank) const {
        return has_rank(rank) ? by_rank_[static_cast<std::size_t>(rank)] : nullptr;
    }
    /// The peer for a port of that rank that the engine names: the present peer, or a new one in
    /// its place.
    MessagePeer& find_or_add(Rank rank, uint64_t port);
    const std::vector<MessagePeer*>& by_rank() const { return by_rank_; }
    /// The sender of a message. nullptr: the message is for another port, or its sender is no rank
    /// of the job, has another port now, or is gone.
    MessagePeer* sender_of(const Prefix& prefix) {
        if (prefix.target != port_ || !has_rank(prefix.source_rank)) return nullptr;
        MessagePeer* const peer = find(prefix.source_rank);
        if (!peer) return &add(prefix.source_rank, prefix.source);
        return peer->port == prefix.source && !peer->gone ? peer : nullptr;
    }
    Prefix prefix_to(const MessagePeer& peer, Prefix::Kind kind, uint64_t number,
                     uint64_t bytes) const {
        return {.kind = kind,
                .source_rank = rank_,
                .source = port_,
                .target = peer.port,
                .number = number,
                .bytes = bytes};
    }

private:
    MessagePeer& add(Rank rank, uint64_t port);

    const Rank rank_;
    const uint64_t port_;
    std::vector<std::unique_ptr<MessagePeer>> peers_;  // present and replaced ones
    std::vector<MessagePeer*> by_rank_;                // the present ones
};

}  // namespace tutti::fabric
