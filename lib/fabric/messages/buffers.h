// A message port's own memory for messages: send buffers and receive buffers.
#pragma once

#include <deque>
#include <utility>
#include <vector>

#include "fabric/messages/messenger.h"

namespace tutti::fabric {

/// Aligns the payload to a cache line.
inline constexpr std::size_t buffer_offset_bytes =
    round_up(envelope_bytes, cache_line_bytes) - envelope_bytes;
/// The memory of a buffer for messages of message_bytes.
constexpr std::size_t buffer_bytes(std::size_t message_bytes) {
    return round_up(buffer_offset_bytes + message_bytes, cache_line_bytes);
}

/// The numbers of a port's buffers, and their message sizes. A port has as many buffers for
/// receiving small messages as for sending. They are few enough to stay in the cache. The counts
/// are halved if the library's queues are short, because large payloads need room there too.
struct BufferCounts {
    static constexpr std::size_t least_bounces = 8, most_bounces = 64, most_staged = 128;

    explicit BufferCounts(const MessengerLimits& limits);
    std::size_t message_bytes, second_bytes;  // of the longest message that an endpoint receives
    std::size_t sent_bytes;                   // of the longest message that is sent
    std::size_t sends, receives, second_receives;
};
/// A completion queue of this size never overruns: it has room for all posted buffers, and for many
/// payloads in flight.
inline constexpr std::size_t most_operations =
    BufferCounts::most_bounces + BufferCounts::least_bounces + BufferCounts::most_staged + 2 * 1024;

/// Send buffers, and the counts of the sends that the library has not finished: for each peer, and
/// for all present peers.
class SendBuffers {
public:
    Result<> allocate(LibraryMemory& memory, std::size_t count, std::size_t message_bytes);
    /// nullptr: the peer has to wait. A peer that receives nothing can hold three quarters of the
    /// buffers at most.
    StagedMessage* take(MessagePeer& peer) {
        if (free_.empty() || peer.staged >= buffers_.size() * 3 / 4) return nullptr;
        StagedMessage* const staged = free_.back();
        free_.pop_back();
        staged->peer = &peer;
        staged->second = false;
        ++peer.staged;
        return staged;
    }
    void give(StagedMessage& staged) {
        --staged.peer->staged;
        free_.push_back(&staged);
    }

    /// Counts a send that the library has accepted for that peer.
    void leaves(MessagePeer& peer) {
        ++leaving_;
        ++peer.leaving;
        peer.refused_since_ns = 0;
    }
    /// Counts a send that the library has finished.
    void left(MessagePeer& peer) {
        if (peer.leaving == 0) return;
        --peer.leaving;
        --leaving_;
    }
    /// Stops counting that peer's sends.
    void forget(MessagePeer& peer) { leaving_ -= std::exchange(peer.leaving, 0); }
    void forget_all() { leaving_ = 0; }
    bool any_leaving() const { return leaving_ > 0; }
    /// Whether unfinished sends explain that the library has no room for another one to that peer.
    bool may_be_full(const MessagePeer& peer) const {
        return peer.leaving > 0 || leaving_ >= buffers_.size();
    }

private:
    std::vector<RegisteredBlock> blocks_;
    std::deque<StagedMessage> buffers_;
    std::vector<StagedMessage*> free_;
    std::size_t leaving_ = 0;
};

/// The buffers for the messages to one endpoint. As many as the goal says are posted, as far as the
/// library accepts them; if the engine holds all buffers, more memory is allocated.
class ReceiveBuffers {
public:
    /// second: for the second endpoint.
    ReceiveBuffers(LibraryMemory& memory, bool second) : memory_(memory), second_(second) {}

    /// Allocates and posts the first buffers, for messages of up to message_bytes. Errors as
    /// post().
    template <typename Messenger>
    Result<> start(Messenger& messenger, std::size_t goal, std::size_t message_bytes) {
        goal_ = goal;
        bytes_ = message_bytes;
        return post(messenger);
    }
    /// An error: the endpoint accepts no receives at all, so no message could arrive.
    template <typename Messenger>
    Result<> post(Messenger& messenger) {
        while (posted_ < goal_) {
            // The engine holds all buffers: allocates more, so that an unread message cannot block
            // others.
            if (free_.empty())
                if (auto grown = grow(); !grown) return bear(std::move(grown).error());
            BounceBuffer& buffer = *free_.back();
            const int code = messenger.post(buffer);
            if (messenger.is_full(code)) return {};
            if (code != 0) {
                Error error;
                error.message = messenger.failure("posting a receive of", bytes_, code);
                return bear(std::move(error));
            }
            free_.pop_back();
            ++posted_;
        }
        return {};
    }
    bool is_behind() const { return posted_ < goal_; }
    bool has_free() const { return !free_.empty(); }
    /// Call when the library has given a buffer back.
    void completed() { --posted_; }
    /// Call when the engine no longer reads the buffer.
    void give(BounceBuffer& buffer) { free_.push_back(&buffer); }

private:
    Result<> grow();
    Result<> bear(Error error) const;

    LibraryMemory& memory_;
    const bool second_;
    std::size_t bytes_ = 0;  // of the longest message
    std::size_t goal_ = 0, posted_ = 0;
    std::vector<RegisteredBlock> blocks_;
    std::deque<BounceBuffer> buffers_;
    std::vector<BounceBuffer*> free_;  // neither posted nor held
};

}  // namespace tutti::fabric
