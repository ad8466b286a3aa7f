// The port's own memory for messages: buffers that they leave from, and buffers that they come in.
#pragma once

#include <deque>
#include <vector>

#include "transports/ofi/operations.h"

namespace tutti::ofi {

/// A payload begins a cache line.
inline constexpr std::size_t slot_offset_bytes =
    round_up(envelope_bytes, cache_line_bytes) - envelope_bytes;
constexpr std::size_t slot_bytes(std::size_t message_bytes) {
    return round_up(slot_offset_bytes + message_bytes, cache_line_bytes);
}

/// Buffers that messages leave from, and the counts of the sends that libfabric has not finished:
/// of each peer, and of all peers that are still there.
class SendBuffers {
public:
    Result<> allocate(LibraryMemory& memory, std::size_t count, std::size_t message_bytes);
    /// nullptr: the peer has to wait. A peer that takes nothing leaves buffers for the others.
    Staged* take(OfiPeer& peer) {
        if (free_.empty() || peer.staged >= buffers_.size() * 3 / 4) return nullptr;
        Staged* const staged = free_.back();
        free_.pop_back();
        staged->peer = &peer;
        staged->second = false;
        ++peer.staged;
        return staged;
    }
    void give(Staged& staged) {
        --staged.peer->staged;
        free_.push_back(&staged);
    }

    /// libfabric has taken a send for that peer.
    void leaves(OfiPeer& peer) {
        ++leaving_;
        ++peer.leaving;
        peer.refused_since_ns = 0;
    }
    /// libfabric has finished an operation, which may be a send.
    void left(const OpContext& operation) {
        OfiPeer* peer = nullptr;
        if (operation.kind == OpContext::Kind::staged)
            peer = static_cast<const Staged&>(operation).peer;
        if (operation.kind == OpContext::Kind::payload_out)
            peer = static_cast<const PayloadOut&>(operation).peer;
        if (!peer || peer->leaving == 0) return;
        --peer->leaving;
        --leaving_;
    }
    /// That peer's sends do not count any more.
    void forget(OfiPeer& peer) { leaving_ -= std::exchange(peer.leaving, 0); }
    void forget_all() { leaving_ = 0; }
    bool any_leaving() const { return leaving_ > 0; }
    /// Whether earlier sends explain that libfabric has no room for another one to that peer.
    bool may_be_full(const OfiPeer& peer) const {
        return peer.staged > 0 || peer.leaving > 0 || leaving_ >= buffers_.size();
    }

private:
    std::vector<RegisteredBlock> blocks_;
    std::deque<Staged> buffers_;
    std::vector<Staged*> free_;
    std::size_t leaving_ = 0;
};

/// The buffers for what comes to one endpoint. As many as the goal says are posted, as far as the
/// provider takes them; there is more memory for them when all are held.
class ReceiveBuffers {
public:
    ReceiveBuffers(const Objects& objects, LibraryMemory& memory)
        : objects_(objects), memory_(memory) {}
    /// For messages of up to so many bytes.
    void set_up(fid_ep* endpoint, std::size_t message_bytes) {
        endpoint_ = endpoint;
        bytes_ = message_bytes;
    }
    std::size_t message_bytes() const { return bytes_; }
    /// Allocates and posts the first buffers. 0: the endpoint is not used.
    Result<> start(std::size_t goal);
    /// An error: the endpoint takes no receives at all, and nothing would ever be heard.
    Result<> post();
    bool is_behind() const { return posted_ < goal_; }
    bool has_free() const { return !free_.empty(); }
    /// libfabric has given a buffer back.
    void completed() { --posted_; }
    /// Nothing reads a buffer any more.
    void give(BounceBuffer& buffer) { free_.push_back(&buffer); }

private:
    Result<> grow();

    const Objects& objects_;
    LibraryMemory& memory_;
    fid_ep* endpoint_ = nullptr;
    std::size_t bytes_ = 0;  // of the longest message
    std::size_t goal_ = 0, posted_ = 0;
    std::vector<RegisteredBlock> blocks_;
    std::deque<BounceBuffer> buffers_;
    std::vector<BounceBuffer*> free_;  // neither posted nor held
};

}  // namespace tutti::ofi
