// The memory of the channels from one process to another. Each has its control line and small cells
// for as long as it lives; the large cells belong to all of them, a ring of them at a time being on
// loan to the channel that uses it.
//
// A channel keeps a loan until another one wants it: it is in use only between a reservation and
// its commit, and else is idle; a ring that is idle, and whose messages have all been read, is
// taken from its channel when there is no free one. If there is none either, memory grows. So no
// channel ever waits for another, and memory is that of the large messages that were under way at
// once.
//
// Threads: any. A channel's owner and whoever takes its ring meet at one atomic word; the lock is
// for what concerns several channels.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/mapped/mapped_channel.h"

namespace tutti {

/// The sender's side of one channel's memory.
struct ChannelSpace {
    struct Ring {
        SegmentPlace place;
        std::byte* data = nullptr;
        ChannelSpace* user = nullptr;  // under the pool's mutex
    };
    // none and examined: only under the pool's mutex.
    enum class Loan : uint8_t { none, used, idle, examined };

    Arena::Block block;
    std::atomic<Loan> loan{Loan::none};
    Ring* ring = nullptr;
    uint64_t position = 0;  // the channel's, written before it is idle
};

class ChannelPool {
public:
    explicit ChannelPool(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}

    /// A new channel, and room for large cells if all its like should need them at once: the peer
    /// must be given the arena's segments before it is told of the channel.
    Result<std::unique_ptr<ChannelSpace>> open();
    /// The sender is gone; the memory is used again when its reader is.
    void close(std::unique_ptr<ChannelSpace> space);

    /// Before a large message is written: space.ring is the channel's until return_ring().
    /// no_memory: the system refuses.
    Result<> borrow(ChannelSpace& space);
    /// After it was published; position: the next message's.
    static void return_ring(ChannelSpace& space, uint64_t position);

    const std::shared_ptr<Arena>& arena() const { return arena_; }
    /// Bytes of large cells that have taken memory.
    std::size_t ring_bytes() const;

private:
    using Loan = ChannelSpace::Loan;
    using Ring = ChannelSpace::Ring;
    std::vector<std::unique_ptr<ChannelSpace>> take_closed();
    Result<Ring*> find_ring();
    static bool take_back(Ring& ring);

    const std::shared_ptr<Arena> arena_;
    mutable std::mutex mutex_;
    std::size_t channels_ = 0;                           // open, or closed and still read from
    std::vector<std::unique_ptr<Ring>> rings_;           // that have memory
    std::vector<SegmentPlace> bare_rings_;               // that have none yet
    std::vector<std::unique_ptr<ChannelSpace>> closed_;  // by the sender
};

}  // namespace tutti
