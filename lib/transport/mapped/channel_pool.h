// The memory of the channels from one process to another. A channel has a control line and small
// cells of its own for as long as it lives. All channels share the large cells: a set of large
// cells is on loan to the channel that uses it.
//
// A channel keeps a loan until another channel needs the set. The loan is in use only between a
// reservation and its commit, and idle otherwise. If no set is free, the pool takes an idle set
// whose messages have all been read from its channel. If there is none, the pool allocates a new
// one. So no channel ever waits for another, and the pool's memory is that of the large messages
// that were in flight at once.
//
// Threads: any. The thread that drives a channel and the thread that takes its set synchronise on
// one atomic word; the lock protects state of several channels.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "transport/mapped/mapped_channel.h"

namespace tutti {

/// The sender's side of one channel's memory.
struct ChannelSpace {
    struct CellSet {
        SegmentPlace place;
        std::byte* data = nullptr;
        ChannelSpace* user = nullptr;  // protected by the pool's mutex
    };
    // A thread changes the state from or to none and examined only under the pool's mutex.
    enum class Loan : uint8_t { none, used, idle, examined };

    Arena::Block block;
    std::atomic<Loan> loan{Loan::none};
    CellSet* cells = nullptr;
    uint64_t position = 0;  // the channel's position, written before the loan is idle
};

class ChannelPool {
public:
    /// reader_ended: set once the readers' process runs no more; nullptr: it is this one.
    explicit ChannelPool(std::shared_ptr<Arena> arena,
                         std::shared_ptr<const std::atomic<bool>> reader_ended = nullptr)
        : arena_(std::move(arena)), reader_ended_(std::move(reader_ended)) {}
    /// Every sender is destroyed. Gives the memory back that no reader uses any more.
    ~ChannelPool();
    ChannelPool(const ChannelPool&) = delete;

    /// Opens a new channel, and makes sure that every channel can have large cells at once. The
    /// caller must send the arena's segments to the peer before it tells the peer of the channel.
    Result<std::unique_ptr<ChannelSpace>> open();
    /// The sender is destroyed; the pool reuses the memory once the reader has closed too, or its
    /// process has ended.
    void close(std::unique_ptr<ChannelSpace> space);

    /// Call before writing a large message: space.cells belongs to the channel until
    /// return_cells(). no_memory: the system refuses.
    Result<> borrow(ChannelSpace& space);
    /// Call after publishing the message; position: the next message's.
    static void return_cells(ChannelSpace& space, uint64_t position);

    const std::shared_ptr<Arena>& arena() const { return arena_; }
    /// Bytes of large cells that are backed by memory.
    std::size_t cell_set_bytes() const;

private:
    using Loan = ChannelSpace::Loan;
    using CellSet = ChannelSpace::CellSet;
    std::vector<std::unique_ptr<ChannelSpace>> take_closed();
    Result<CellSet*> find_cells();
    static bool take_back(CellSet& set);
    bool has_reader(const ChannelSpace& space) const;

    const std::shared_ptr<Arena> arena_;
    const std::shared_ptr<const std::atomic<bool>> reader_ended_;
    mutable std::mutex mutex_;
    std::size_t channels_ = 0;                           // open, or closed with the reader still
                                                         // open
    std::vector<std::unique_ptr<CellSet>> cell_sets_;    // backed by memory
    std::vector<SegmentPlace> bare_cell_sets_;           // not backed by memory yet
    std::vector<std::unique_ptr<ChannelSpace>> closed_;  // closed by the sender
};

}  // namespace tutti
