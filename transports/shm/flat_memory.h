// The memory of a flat group, as all its ranks map it:
//
//   [members that have left][per stream: sleeping ranks][slot headers][per slot: 64 KiB payload]
//
// with a slot for each (stream, rank, operation modulo flat_depth). A header is one line: turn, tag
// and the payload if it has at most 24 bytes.
//
// Why four slots per rank and no check before a slot is overwritten. Operations of a stream run one
// after the other on each rank, and operation k completes on a rank only after that rank has seen
// every peer's slot of k - 1 (for an allreduce or a barrier: of k too). So when a rank writes its
// slot of k, over that of k - 4, it has completed k - 1 and seen every peer's slot of k - 2. That
// peer wrote it after it had completed k - 3, and the last slots that k - 3 reads are those of k -
// 4. With fewer slots a rank would have to check before it writes.
#pragma once

#include <atomic>

#include "base/types.h"
#include "transport/channel.h"
#include "transport/mapped/segments.h"

namespace tutti::shm {

inline constexpr Rank flat_max_ranks = 64;  // a rank's bit in the 64-bit word of sleeping ranks
inline constexpr uint32_t flat_depth = 4;
inline constexpr std::size_t flat_slot_bytes = 64 * 1024;
inline constexpr std::size_t flat_inline_bytes = 24;

/// The group's first line.
struct FlatHeader {
    uint64_t reserved;           // members of version 0.1.0 count themselves here as they leave
    std::atomic<uint64_t> left;  // the members that no longer use the memory, as bits
};

struct FlatSlot {
    std::atomic<uint64_t> turn;  // epoch << 48 | operation number, from 1; written last
    Tag tag;
    std::byte payload[flat_inline_bytes];
};
static_assert(sizeof(FlatSlot) == cache_line_bytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share these words");

class FlatLayout {
public:
    FlatLayout(Rank size, uint32_t streams)
        : size_(static_cast<std::size_t>(size)), streams_(streams) {}

    /// Allocated at once; payload areas are allocated when an operation that needs them is bound.
    std::size_t eager_bytes() const {
        return round_up((1 + streams_ + slots()) * no_share_bytes, page_bytes);
    }
    std::size_t bytes() const { return eager_bytes() + slots() * flat_slot_bytes; }

    std::size_t sleepers_offset(uint32_t stream) const { return (1 + stream) * no_share_bytes; }
    /// The slots of all ranks for one (stream, turn), rank by rank, no_share_bytes apart.
    std::size_t slots_offset(uint32_t stream, uint64_t turn) const {
        return (1 + streams_ + index(stream, turn)) * no_share_bytes;
    }
    std::size_t areas_offset(uint32_t stream, uint64_t turn) const {
        return eager_bytes() + index(stream, turn) * flat_slot_bytes;
    }

private:
    std::size_t slots() const { return streams_ * flat_depth * size_; }
    std::size_t index(uint32_t stream, uint64_t turn) const {
        return (stream * flat_depth + turn % flat_depth) * size_;
    }

    std::size_t size_;
    std::size_t streams_;
};

}  // namespace tutti::shm
