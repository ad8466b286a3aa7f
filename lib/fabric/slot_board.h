// The flat exchange over a fabric, for messages so small that a channel's bookkeeping costs more
// than sending them: every rank sends its contribution to all other ranks at once, in a message of
// its own that needs no credit, and adds up the contributions that it receives.
//
// Why two slots per rank and no credits. Operations of a stream run one after the other on each
// rank, and operation k completes on a rank only when every peer's contribution to k is here. So
// when a rank sends for k, it has completed k - 1 and has every peer's k - 1; those peers had
// completed k - 2 before they sent that, and no longer read their slots of k - 2, which are the
// slots of k.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "fabric/flow.h"
#include "fabric/header.h"

namespace tutti::fabric {

inline constexpr Rank flat_max_ranks = 8;
inline constexpr std::size_t flat_depth = 2;
/// The payload of a slot. All ranks must agree on it, so a port that copies less at once has no
/// flat exchange.
inline constexpr std::size_t flat_max_bytes = 448;

/// A contribution as it is sent to every peer. The engine writes the constant fields once.
struct Contribution {
    Header header;
    std::array<std::byte, flat_max_bytes> payload;
};

/// The slots of one stream of a group, on this rank.
struct SlotStream {
    explicit SlotStream(Rank ranks) : slots(static_cast<std::size_t>(ranks) * flat_depth) {}

    struct alignas(cache_line_bytes) Slot {
        std::atomic<uint64_t> turn{0};  // epoch << 48 | operation number, from 1; written last
        Tag tag;
        uint32_t bytes = 0;
        alignas(16) std::array<std::byte, flat_max_bytes> payload;
    };
    static uint64_t turn_of(const Tag& tag, uint64_t number) {
        return tag.epoch() << Tag::epoch_shift | static_cast<uint32_t>(number);
    }
    /// Whether a slot with turn `held` already had the other turn.
    static bool is_past(uint64_t held, uint64_t turn) {
        if (held >> Tag::epoch_shift != turn >> Tag::epoch_shift) return held > turn;
        return static_cast<int32_t>(static_cast<uint32_t>(held) - static_cast<uint32_t>(turn)) >= 0;
    }
    Slot& slot(std::size_t member, uint64_t number) {
        return slots[member * flat_depth + number % flat_depth];
    }
    bool has(std::size_t member, uint64_t number, uint64_t turn) {
        return slot(member, number).turn.load(std::memory_order_acquire) == turn;
    }

    // The stream's own channels. If a message of a call before a flat one is unread there, no call
    // will read it.
    std::vector<Flow*> flows;         // used by the engine's owner
    std::atomic<bool> unread{false};  // such a message may be here

    // The operation's thread writes it while `unsent` is 0; otherwise the engine's owner reads it.
    Contribution outgoing;
    std::atomic<uint64_t> unsent{0};  // members that must still be sent it, a bit each

    // The engine's owner writes the peers' slots, and the operation's thread reads them; that
    // thread also writes the turn of its own slot.
    std::vector<Slot> slots;
    // A thread that goes to sleep sets this, enters the engine once, and checks its slots again.
    // So, unlike with a channel, the engine's owner needs no fence between its store to a slot and
    // its load of this.
    Sleeper sleeper;
};

/// A group as one of its engines knows it: with the streams that run over this engine.
struct SlotBoard {
    struct Share {
        std::size_t engine = 0, engines = 1;
    };
    SlotBoard(uint32_t in_comm, Rank in_rank, Rank ranks, uint32_t stream_count, const Share& share)
        : comm(in_comm),
          rank(in_rank),
          peers(static_cast<std::size_t>(ranks)),
          streams(stream_count) {
        for (std::size_t i = share.engine; i < streams.size(); i += share.engines)
            streams[i] = std::make_unique<SlotStream>(ranks);
    }
    std::size_t size() const { return peers.size(); }
    /// nullptr: that stream does not run over this engine.
    SlotStream* stream(std::size_t index) const {
        return index < streams.size() ? streams[index].get() : nullptr;
    }

    const uint32_t comm;
    const Rank rank;
    std::vector<Peer*> peers;  // by member; nullptr: this rank
    std::vector<std::unique_ptr<SlotStream>> streams;
};

}  // namespace tutti::fabric
