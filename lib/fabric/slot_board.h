// The flat exchange over a fabric, for messages so small that what channels do for them costs more
// than sending them: every rank sends its contribution to all others at once, in a message of its
// own that needs no credit, and adds up what has come.
//
// Why two slots a rank and no credits. Operations of a stream run one after the other on each rank,
// and operation k completes on a rank only when every peer's contribution to k is here. So when a
// rank sends for k, it has completed k - 1 and has every peer's k - 1; those peers had completed k
// - 2 before they sent that, and read their slots of k - 2, which are those of k, no more.
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
/// The payload of a slot. All ranks must have the same, so a port that copies less at once has no
/// flat exchange.
inline constexpr std::size_t flat_max_bytes = 448;

/// A contribution as it goes to every peer. What is always the same the engine writes once.
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
    /// Whether a slot that holds this turn has seen the other.
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

    // The streams' own channels: what lies there unread from calls before a flat one, no call
    // reads.
    std::vector<Flow*> flows;         // the engine's owner's
    std::atomic<bool> unread{false};  // there may be such a message here

    // The operation's thread writes it while no member is left to be sent it; else the engine's
    // owner reads it.
    Contribution outgoing;
    std::atomic<uint64_t> unsent{0};  // members that are still to be sent it, a bit each

    // The engine's owner writes, the operation's thread reads; that thread writes the turn of its
    // own.
    std::vector<Slot> slots;
    // A thread that goes to sleep announces it, holds the engine once, and looks again: unlike a
    // channel's, no owner of the engine needs a fence between what it publishes here and its look
    // at the sleeper.
    Sleeper sleeper;
};

/// A group as one of its engines knows it: with the streams that run over this one.
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
    /// Null: there is none here.
    SlotStream* stream(std::size_t index) const {
        return index < streams.size() ? streams[index].get() : nullptr;
    }

    const uint32_t comm;
    const Rank rank;
    std::vector<Peer*> peers;  // by member; null: this rank
    std::vector<std::unique_ptr<SlotStream>> streams;
};

}  // namespace tutti::fabric
