// The seam every transport implements: a channel is one peer, one lane, one direction, in order,
// flow-controlled, and never blocks.
//
// Two data paths:
//   built   the sender reserves the next message's memory (a cell the peer maps, or the transport's
//           registered staging) and computes into it, or copies there what it keeps as well;
//   pushed  the sender hands over memory that already holds the value; the transport sends from it
//           and says when it has let go of it.
// Likewise a receiver peeks at whole messages where they lie, and may offer the memory it wants the
// next one in, which a transport honours when it can (a posted receive) and ignores when it cannot.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/types.h"

namespace tutti {

class StreamingStorePolicy;

/// Travels with every message: identifies its operation, and has everything about the call that all
/// ranks must agree on. Equal tags on both sides mean equal message sizes.
struct Tag {
    uint64_t sequence = 0;  // epoch << 48 | number of the operation on its communicator
    uint64_t count = 0;     // elements
    uint32_t call = 0;      // collective, dtype, operator, flags: pack_call (engine)
    int32_t root = 0;
    uint64_t plan = 0;  // algorithm, lanes, tile size, stream: what the ranks derived
    bool operator==(const Tag&) const = default;

    static constexpr int epoch_shift = 48;
    uint64_t epoch() const { return sequence >> epoch_shift; }
    /// True: a mismatch came between this operation and `expected`, so drop its messages.
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

/// The outgoing half. Owned by the thread that drives the lane's stream, one at a time.
class Sender {
public:
    virtual ~Sender() = default;

    /// Memory for the next message, or nullptr while there is no credit. Asking again without
    /// commit gives the same memory. bytes ≤ the transport's max_message_bytes.
    virtual std::byte* reserve(std::size_t bytes) = 0;
    /// The policy by which the caller writes the memory reserved last, through measure(). nullptr:
    /// with ordinary stores.
    virtual StreamingStorePolicy* streaming_policy(Writer writer) {
        static_cast<void>(writer);
        return nullptr;
    }
    /// Sends what was built in the reserved memory.
    virtual void commit(const Tag& tag, std::size_t bytes) = 0;

    /// True when a push now would be accepted.
    virtual bool can_push() = 0;
    /// Sends from the caller's memory, which must stay as it is until drained().
    virtual void push(const Tag& tag, const std::byte* data, std::size_t bytes) = 0;
    /// Whether messages to and from that peer may lie in a GPU's memory, which the host cannot
    /// touch: push_from_device() here, offer_on_device() of the other direction's channel.
    virtual bool takes_device() const { return false; }
    /// As push(), from such memory. What has not left when the operation fails is not finished from
    /// a copy: cancel() waits for it.
    virtual void push_from_device(const Tag& tag, const std::byte* data, std::size_t bytes) {
        static_cast<void>(tag), static_cast<void>(data), static_cast<void>(bytes);
        assert(!"only where takes_device()");
    }
    /// True when every push has left the caller's memory, or never will: the peer is lost.
    virtual bool drained() = 0;
    /// True when every push has left; those before a cancel() do not count.
    virtual bool all_sent() = 0;

    /// Lets go of the caller's memory at once (the operation failed); what had begun to travel is
    /// finished from a copy. A reservation that was not committed is forgotten.
    virtual void cancel() = 0;

    /// on: a thread is about to sleep until this channel can take more; the peer rings the
    /// doorbell.
    virtual void arm(bool on) = 0;
    /// ok, or why this channel will never work again (peer_lost).
    virtual Code health() const = 0;
};

/// The incoming half. Same ownership rule.
class Receiver {
public:
    virtual ~Receiver() = default;

    struct PeekedMessage {
        const std::byte* data = nullptr;  // nullptr: nothing whole has arrived yet
        Tag tag;
    };

    /// Asks for the next message in this memory. A hint: peek() says where the message really is.
    /// The channel owns the memory until that message was peeked or cancel() returned.
    virtual void offer(const Tag& tag, std::byte* where, std::size_t bytes) = 0;
    /// As offer(), of a GPU's memory; what comes elsewhere comes to the host's. From the first one
    /// on, messages that are only announced are not fetched before their turn to be offered or
    /// peeked at.
    virtual void offer_on_device(const Tag& tag, std::byte* where, std::size_t bytes) {
        static_cast<void>(tag), static_cast<void>(where), static_cast<void>(bytes);
    }

    /// The oldest message, when it has arrived whole: `bytes` bytes if its tag is the expected one.
    virtual PeekedMessage peek(const Tag& expected, std::size_t bytes) = 0;
    /// Done with it; gives the credit back.
    virtual void release() = 0;

    /// Takes back an offer. Messages stay: a later operation drops them as stale.
    virtual void cancel() = 0;
    virtual void arm(bool on) = 0;
    virtual Code health() const = 0;
};

}  // namespace tutti
