// A channel through memory that both sides map: a ring of cells, written by one side and read by
// the other. One line per cell holds whose turn it is, the tag and, for tiny messages, the payload,
// so a message of up to 24 bytes costs one cache line on its way.
//
//   [control line][cell headers, 128 bytes apart][4 KiB per cell][mapped_cell_bytes per cell]
//
// Turns: cell i starts at turn i. For the message at position p (cell p mod cells) the writer waits
// for turn p and publishes p + 1; the reader waits for p + 1 and releases with p + cells. Both only
// compare a turn with the value they expect: nothing the peer writes becomes an index or a length.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "base/fd.h"
#include "transport/channel.h"

namespace tutti {

inline constexpr uint32_t mapped_cells = 8;
inline constexpr std::size_t mapped_cell_bytes = 128 * 1024;
inline constexpr std::size_t mapped_inline_bytes = 24;

/// Up to here a message uses pages that exist from the start; the large cells take memory (1 MiB)
/// only once a message above this size is sent.
inline constexpr std::size_t mapped_small_bytes = 4096;
inline constexpr std::size_t mapped_eager_bytes = 4096 + mapped_cells * mapped_small_bytes;
inline constexpr std::size_t mapped_channel_bytes =
    mapped_eager_bytes + mapped_cells * mapped_cell_bytes;

/// Wakes a sleeping process: an eventfd that its waiters poll.
class Doorbell {
public:
    explicit Doorbell(UniqueFd fd) : fd_(std::move(fd)) {}
    void ring() const;
    int fd() const { return fd_.get(); }

private:
    UniqueFd fd_;
};

/// Whether the process at the other end still lives; written by whoever hears the news.
struct PeerLife {
    std::atomic<bool> gone{false};
};

/// One half's hold on a channel.
struct MappedHalf {
    std::shared_ptr<std::byte> memory;         // mapped_channel_bytes, page-aligned
    std::shared_ptr<const Doorbell> doorbell;  // the other side's
    std::shared_ptr<const PeerLife> peer;
};

/// Writes the first turns; before the other side sees the memory.
void format_mapped_channel(std::byte* memory);

namespace detail {
struct Cell;
struct Control;
}  // namespace detail

class MappedSender final : public Sender {
public:
    /// backing: the descriptor the memory is a mapping of, whose large cells are still to be
    /// allocated; none if all of the memory is there.
    explicit MappedSender(MappedHalf half, UniqueFd backing = {});

    std::byte* reserve(std::size_t bytes) override;
    void commit(const Tag& tag, std::size_t bytes) override;
    bool can_push() override;
    void push(const Tag& tag, const std::byte* data, std::size_t bytes) override;
    bool drained() override { return true; }
    void cancel() override {}
    void arm(bool on) override;
    /// no_memory: the system would not give memory for large messages.
    Code health() const override;

private:
    bool back_large_cells();
    void publish(const Tag& tag);

    MappedHalf half_;
    UniqueFd backing_;
    detail::Control* control_;
    uint64_t position_ = 0;
    bool no_memory_ = false;
    // A tiny message is built here and copied in one go: a reader that spins on the line would
    // steal it between the builder's stores.
    alignas(cache_line_bytes) std::array<std::byte, mapped_inline_bytes> staging_{};
};

class MappedReceiver final : public Receiver {
public:
    explicit MappedReceiver(MappedHalf half);

    void offer(const Tag&, std::byte*, std::size_t) override {}
    Message peek(const Tag& expected, std::size_t bytes) override;
    void release() override;
    void cancel() override {}
    void arm(bool on) override;
    /// ok as long as a message is left to read, also when its sender is gone.
    Code health() const override;

private:
    bool has_message() const;

    MappedHalf half_;
    detail::Control* control_;
    uint64_t position_ = 0;
};

}  // namespace tutti
