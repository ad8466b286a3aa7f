// A channel through memory that both sides map: cells in a circle, which one side writes and the
// other side reads. One cache line per cell holds the turn, the tag and, for tiny messages, the
// payload, so a message of up to 24 bytes moves one cache line.
//
//   [control line][cell headers, 128 bytes apart][4 KiB per cell]
//
// Larger messages use cells of 128 KiB that the channels of a pair of processes share
// (channel_pool.h); then the cell's header holds the place of those cells instead of a payload.
//
// Turns: cell i starts at turn i. For the message at position p (cell p mod cells) the writer waits
// for turn p and publishes p + 1; the reader waits for p + 1 and releases with p + cells. Both only
// compare a turn with the value they expect. No number that the peer writes becomes a length, and
// the reader uses a place only if all these cells are inside a segment that is mapped here.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "reduce/streaming_stores.h"
#include "transport/channel.h"
#include "transport/mapped/segments.h"
#include "transport/transport.h"
#include "wait/doorbell.h"

namespace tutti {

inline constexpr uint32_t mapped_cells = 8;
inline constexpr std::size_t mapped_cell_bytes = 128 * 1024;
inline constexpr std::size_t mapped_inline_bytes = 24;

/// A message of up to this size uses memory that the channel has from the start.
inline constexpr std::size_t mapped_small_bytes = 4096;
inline constexpr std::size_t mapped_channel_bytes = 4096 + mapped_cells * mapped_small_bytes;
/// A message of this size or more may be written with streaming stores. They must be this many
/// times as fast as ordinary stores; a kernel computes as long either way, so its gain is smaller.
inline constexpr std::size_t mapped_streaming_bytes = 16 * 1024;
inline constexpr double mapped_copy_gain = 3.5, mapped_kernel_gain = 2;
/// The set of large cells that the pool lends to a channel.
inline constexpr std::size_t mapped_cell_set_bytes = mapped_cells * mapped_cell_bytes;

/// The same for every transport with these channels, except for the latency.
inline Capabilities mapped_capabilities(double latency_us) {
    Capabilities c;
    c.mapped = c.same_host_only = true;
    c.max_message_bytes = mapped_cell_bytes;
    c.credits = mapped_cells;
    c.latency_us = latency_us;
    c.bandwidth_gbs = 12;
    return c;
}

/// Whether the process at the other end still lives. The thread that learns of its death writes it.
struct PeerLife {
    std::atomic<bool> gone{false};
};

/// The peer of a channel's half: its doorbell, and whether its process lives.
struct MappedPeer {
    std::shared_ptr<const Doorbell> doorbell;
    std::shared_ptr<const PeerLife> life;
};

/// Writes the first turns. Call it before the other side sees the memory.
void format_mapped_channel(std::byte* memory);
/// Whether the reader has released every message before that position: then only the writer uses
/// the cells.
bool mapped_cells_home(const std::byte* memory, uint64_t position);
/// Whether the reader is closed for good.
bool mapped_reader_closed(const std::byte* memory);

class ChannelPool;
struct ChannelSpace;

namespace detail {
struct Cell;
struct ChannelControl;
}  // namespace detail

class MappedSender final : public Sender {
public:
    MappedSender(std::shared_ptr<ChannelPool> pool, std::unique_ptr<ChannelSpace> space,
                 MappedPeer peer);
    ~MappedSender() override;

    std::byte* reserve(std::size_t bytes) override;
    StreamingStorePolicy* streaming_policy(Writer writer) override {
        if (!measures_) return nullptr;
        return writer == Writer::copy ? &copies_ : &kernels_;
    }
    void commit(const Tag& tag, std::size_t bytes) override;
    bool can_push() override;
    void push(const Tag& tag, const std::byte* data, std::size_t bytes) override;
    bool drained() override { return true; }
    bool all_sent() override { return true; }
    void cancel() override { return_cells(); }
    void arm(bool on) override;
    /// no_memory: the system refuses memory for large messages.
    Code health() const override;

private:
    std::byte* reserve_large();
    void return_cells();
    void publish(const Tag& tag);

    std::shared_ptr<ChannelPool> pool_;
    std::unique_ptr<ChannelSpace> space_;
    MappedPeer peer_;
    std::byte* const memory_;
    detail::ChannelControl* const control_;
    uint64_t position_ = 0;
    bool borrows_ = false;   // a large cell is reserved
    bool measures_ = false;  // the reserved message is large enough to be measured
    StreamingStorePolicy copies_{mapped_copy_gain}, kernels_{mapped_kernel_gain};
    bool no_memory_ = false;
    // The sender builds a tiny message here and copies it into the cell in one go: a reader that
    // spins on the cell's line would steal the line between the builder's stores.
    alignas(cache_line_bytes) std::array<std::byte, mapped_inline_bytes> staging_{};
};

class MappedReceiver final : public Receiver {
public:
    /// memory: the channel's; segments: the segments that the sender's process made.
    MappedReceiver(std::byte* memory, std::shared_ptr<const SegmentTable> segments,
                   MappedPeer peer);
    ~MappedReceiver() override;

    void offer(const Tag&, std::byte*, std::size_t) override {}
    PeekedMessage peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override {}
    void arm(bool on) override;
    /// ok as long as an unread message is left, even if the sender is gone.
    Code health() const override;

private:
    bool has_message() const;
    const std::byte* large_message(const detail::Cell& cell);

    std::shared_ptr<const SegmentTable> segments_;
    MappedPeer peer_;
    std::byte* const memory_;
    detail::ChannelControl* const control_;
    const int process_;
    uint64_t position_ = 0;
    SegmentPlace large_cells_place_;  // of the large cells that were used last, and
    const std::byte* large_cells_ = nullptr;
};

}  // namespace tutti
