// A channel through memory that both sides map: a ring of cells, written by one side and read by
// the other. One line per cell holds whose turn it is, the tag and, for tiny messages, the payload,
// so a message of up to 24 bytes costs one cache line on its way.
//
//   [control line][cell headers, 128 bytes apart][4 KiB per cell]
//
// Larger messages lie in cells of 128 KiB that the channels of a pair of processes share
// (channel_pool.h); then the header says where, in place of a payload.
//
// Turns: cell i starts at turn i. For the message at position p (cell p mod cells) the writer waits
// for turn p and publishes p + 1; the reader waits for p + 1 and releases with p + cells. Both only
// compare a turn with the value they expect. Nothing the peer writes becomes a length, and a place
// is used only if what is expected there lies within a segment that is mapped here.
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

/// Up to here a message uses memory that the channel has from the start.
inline constexpr std::size_t mapped_small_bytes = 4096;
inline constexpr std::size_t mapped_channel_bytes = 4096 + mapped_cells * mapped_small_bytes;
/// From here on a message may be written past the cache, if that is so many times as fast: a kernel
/// computes as long either way, and a long copy waits for no lines to begin with.
inline constexpr std::size_t mapped_streaming_bytes = 16 * 1024;
inline constexpr double mapped_copy_gain = 3.5, mapped_kernel_gain = 2;
/// The cells of larger messages, as lent to a channel.
inline constexpr std::size_t mapped_ring_bytes = mapped_cells * mapped_cell_bytes;

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

/// Whether the process at the other end still lives; written by whoever hears the news.
struct PeerLife {
    std::atomic<bool> gone{false};
};

/// The peer of a channel's half: its doorbell, and whether its process lives.
struct MappedPeer {
    std::shared_ptr<const Doorbell> doorbell;
    std::shared_ptr<const PeerLife> life;
};

/// Writes the first turns; before the other side sees the memory.
void format_mapped_channel(std::byte* memory);
/// Whether all that was written before that position has been read: the cells are the writer's.
bool mapped_cells_home(const std::byte* memory, uint64_t position);
/// Whether the reader is gone for good.
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
    void cancel() override { return_ring(); }
    void arm(bool on) override;
    /// no_memory: the system would not give memory for large messages.
    Code health() const override;

private:
    std::byte* reserve_large();
    void return_ring();
    void publish(const Tag& tag);

    std::shared_ptr<ChannelPool> pool_;
    std::unique_ptr<ChannelSpace> space_;
    MappedPeer peer_;
    std::byte* const memory_;
    detail::ChannelControl* const control_;
    uint64_t position_ = 0;
    bool borrows_ = false;   // a large cell is reserved
    bool measures_ = false;  // and large enough to be measured
    StreamingStorePolicy copies_{mapped_copy_gain}, kernels_{mapped_kernel_gain};
    bool no_memory_ = false;
    // A tiny message is built here and copied in one go: a reader that spins on the line would
    // steal it between the builder's stores.
    alignas(cache_line_bytes) std::array<std::byte, mapped_inline_bytes> staging_{};
};

class MappedReceiver final : public Receiver {
public:
    /// memory: the channel's; segments: those that its sender's process made.
    MappedReceiver(std::byte* memory, std::shared_ptr<const SegmentTable> segments,
                   MappedPeer peer);
    ~MappedReceiver() override;

    void offer(const Tag&, std::byte*, std::size_t) override {}
    PeekedMessage peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override {}
    void arm(bool on) override;
    /// ok as long as a message is left to read, also when its sender is gone.
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
    SegmentPlace ring_place_;  // of the large cells that were used last, and
    const std::byte* ring_ = nullptr;
};

}  // namespace tutti
