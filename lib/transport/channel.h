// The interface that every transport implements. A channel has one peer, one lane and one
// direction. It keeps the order of messages, has flow control, and never blocks.
//
// Two data paths:
//   built   the sender reserves the next message's memory (a cell that the peer maps, or the
//           transport's registered staging) and computes or copies the message into it;
//   pushed  the sender hands over memory that already holds the message; the transport sends
//           from it and says when it no longer reads it.
// Likewise a receiver peeks at whole messages in the transport's memory, and may offer the memory
// for the next message. A transport that supports posted receives puts the message there; others
// ignore the offer.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/types.h"

namespace tutti {

class StreamingStorePolicy;

/// Travels with every message. It identifies the message's operation and holds everything about the
/// call that all ranks must agree on. Equal tags on both sides mean equal message sizes.
struct Tag {
    uint64_t sequence = 0;  // epoch << 48 | number of the operation on its communicator
    uint64_t count = 0;     // elements
    uint32_t call = 0;      // collective, dtype, operator, flags: pack_call (engine)
    int32_t root = 0;
    uint64_t plan = 0;  // algorithm, lanes, tile size, stream: derived by each rank
    bool operator==(const Tag&) const = default;

    static constexpr int epoch_shift = 48;
    uint64_t epoch() const { return sequence >> epoch_shift; }
    /// True: a mismatch ended this operation's epoch before `expected` began, so the receiver drops
    /// its messages.
    bool is_stale(const Tag& expected) const { return epoch() < expected.epoch(); }
};
static_assert(sizeof(Tag) == 32);

struct ChannelId {
    Rank peer = nobody;
    uint32_t comm = 0;
    uint16_t lane = 0;  // stream × lanes per stream + lane of the schedule
    bool operator==(const ChannelId&) const = default;
};

/// Whether a copy or a reduction's kernel writes a message into a channel's memory.
enum class Writer : uint8_t { copy, kernel };

/// The outgoing half. One thread at a time owns it: the one that drives the lane's stream.
class Sender {
public:
    virtual ~Sender() = default;

    /// Memory for the next message, or nullptr while there is no credit. A second call without a
    /// commit between returns the same memory. bytes ≤ the transport's max_message_bytes.
    virtual std::byte* reserve(std::size_t bytes) = 0;
    /// The policy by which the caller writes the memory reserved last, through measure(). nullptr:
    /// the caller uses ordinary stores.
    virtual StreamingStorePolicy* streaming_policy(Writer writer) {
        static_cast<void>(writer);
        return nullptr;
    }
    /// Sends the message that the caller built in the reserved memory.
    virtual void commit(const Tag& tag, std::size_t bytes) = 0;

    /// True when a push now would be accepted.
    virtual bool can_push() = 0;
    /// Sends from the caller's memory, which must not change until drained().
    virtual void push(const Tag& tag, const std::byte* data, std::size_t bytes) = 0;
    /// Whether messages to and from that peer may be in a GPU's memory, which the host cannot
    /// access: push_from_device() here, offer_on_device() of the other direction's channel.
    virtual bool takes_device() const { return false; }
    /// As push(), from a GPU's memory. If the operation fails, the transport cannot finish a
    /// pending message from a copy: cancel() waits for it.
    virtual void push_from_device(const Tag& tag, const std::byte* data, std::size_t bytes) {
        static_cast<void>(tag), static_cast<void>(data), static_cast<void>(bytes);
        assert(false && "only where takes_device()");
    }
    /// True when the transport no longer reads the memory of any push: every push was sent, or the
    /// peer is lost.
    virtual bool drained() = 0;
    /// True when every push was sent; pushes before a cancel() do not count.
    virtual bool all_sent() = 0;

    /// Gives the caller's memory back at once (the operation failed). The transport finishes
    /// messages that it has begun to send from a copy. It forgets a reservation that was not
    /// committed.
    virtual void cancel() = 0;

    /// on: a thread is about to sleep until this channel can take more; the peer rings the doorbell
    /// then.
    virtual void arm(bool on) = 0;
    /// ok, or the reason why this channel will never work again (peer_lost).
    virtual Code health() const = 0;
};

/// The incoming half. Same ownership rule.
class Receiver {
public:
    virtual ~Receiver() = default;

    struct PeekedMessage {
        const std::byte* data = nullptr;  // nullptr: no whole message has arrived yet
        Tag tag;
    };

    /// Asks for the next message in this memory. A hint: peek() says where the message really is.
    /// The channel owns the memory until the message is peeked or cancel() returns.
    virtual void offer(const Tag& tag, std::byte* where, std::size_t bytes) = 0;
    /// As offer(), of a GPU's memory. A message that arrives elsewhere arrives in the host's
    /// memory. After the first such offer, the transport fetches an announced message only when the
    /// lane offers memory for it or peeks at it.
    virtual void offer_on_device(const Tag& tag, std::byte* where, std::size_t bytes) {
        static_cast<void>(tag), static_cast<void>(where), static_cast<void>(bytes);
    }

    /// The oldest message, once it has arrived whole. It has `bytes` bytes if its tag is the
    /// expected one.
    virtual PeekedMessage peek(const Tag& expected, std::size_t bytes) = 0;
    /// The caller has read the message; returns the credit to the sender.
    virtual void release() = 0;

    /// Takes back an offer. Arrived messages stay: a later operation drops them as stale.
    virtual void cancel() = 0;
    virtual void arm(bool on) = 0;
    virtual Code health() const = 0;
};

}  // namespace tutti
