#include "transport/mapped/mapped_channel.h"

#include <unistd.h>

#include <cassert>
#include <cstring>
#include <new>

#include "base/log.h"
#include "transport/mapped/channel_pool.h"

namespace tutti {
namespace detail {

struct Cell {
    std::atomic<uint64_t> turn;
    Tag tag;
    std::byte payload[mapped_inline_bytes];
};
static_assert(sizeof(Cell) == cache_line_bytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free, "turns are shared between processes");

struct ChannelControl {
    std::atomic<uint32_t> reader_sleeps;
    std::atomic<uint32_t> writer_sleeps;
    std::atomic<uint32_t> reader_closed;
};

}  // namespace detail

namespace {

using detail::Cell;
using detail::ChannelControl;

constexpr std::size_t header_bytes = 4096;
static_assert(no_share_bytes * (mapped_cells + 1) <= header_bytes);
static_assert(sizeof(SegmentPlace) <= mapped_inline_bytes);
static_assert(header_bytes + mapped_cells * mapped_small_bytes == mapped_channel_bytes);
static_assert(mapped_cells >= 2 && (mapped_cells & (mapped_cells - 1)) == 0);

ChannelControl* control_of(std::byte* memory) {
    return reinterpret_cast<ChannelControl*>(memory);
}

std::size_t index_of(uint64_t position) {
    return position % mapped_cells;
}

Cell& cell_of(std::byte* memory, uint64_t position) {
    return *reinterpret_cast<Cell*>(memory + no_share_bytes * (index_of(position) + 1));
}

std::byte* small_cell(std::byte* memory, uint64_t position) {
    return memory + header_bytes + index_of(position) * mapped_small_bytes;
}

}  // namespace

void format_mapped_channel(std::byte* memory) {
    new (memory) ChannelControl{};
    for (uint64_t i = 0; i < mapped_cells; ++i) {
        Cell* cell = new (&cell_of(memory, i)) Cell{};
        cell->turn.store(i, std::memory_order_release);
    }
}

bool mapped_cells_home(const std::byte* memory, uint64_t position) {
    auto* const cells = const_cast<std::byte*>(memory);  // only the turns are read
    for (uint64_t p = position; p < position + mapped_cells; ++p)
        // Pairs with the reader's release(): the reader no longer reads the payload.
        if (cell_of(cells, p).turn.load(std::memory_order_acquire) != p) return false;
    return true;
}

bool mapped_reader_closed(const std::byte* memory) {
    const auto* control = reinterpret_cast<const ChannelControl*>(memory);
    // Pairs with ~MappedReceiver().
    return control->reader_closed.load(std::memory_order_acquire) != 0;
}

MappedSender::MappedSender(std::shared_ptr<ChannelPool> pool, std::unique_ptr<ChannelSpace> space,
                           MappedPeer peer)
    : pool_(std::move(pool)),
      space_(std::move(space)),
      peer_(std::move(peer)),
      memory_(space_->block.data),
      control_(control_of(memory_)) {}

MappedSender::~MappedSender() {
    return_cells();
    pool_->close(std::move(space_));
}

bool MappedSender::can_push() {
    // Pairs with the reader's store of the turn in release(): the reader no longer reads the
    // payload when this thread overwrites it. seq_cst because this is also the sender's last look
    // between arm(true) and sleeping: either it sees the turn, or the reader's release() sees
    // writer_sleeps. On x86 the load costs no more than an acquire.
    return cell_of(memory_, position_).turn.load(std::memory_order_seq_cst) == position_;
}

std::byte* MappedSender::reserve_large() {
    if (!borrows_) {
        if (no_memory_) return nullptr;
        if (auto lent = pool_->borrow(*space_); !lent) {
            log::error(wrap(lent.error(), "shm: there is no memory for large messages"));
            no_memory_ = true;
            return nullptr;
        }
        borrows_ = true;
    }
    return space_->cells->data + index_of(position_) * mapped_cell_bytes;
}

void MappedSender::return_cells() {
    if (borrows_) ChannelPool::return_cells(*space_, position_);
    borrows_ = measures_ = false;
}

std::byte* MappedSender::reserve(std::size_t bytes) {
    assert(bytes <= mapped_cell_bytes);
    if (!can_push()) return nullptr;
    measures_ = bytes >= mapped_streaming_bytes;
    if (bytes <= mapped_inline_bytes) return staging_.data();
    if (bytes <= mapped_small_bytes) return small_cell(memory_, position_);
    return reserve_large();
}

void MappedSender::commit(const Tag& tag, std::size_t bytes) {
    Cell& cell = cell_of(memory_, position_);
    if (bytes <= mapped_inline_bytes)
        std::memcpy(cell.payload, staging_.data(), mapped_inline_bytes);
    else if (bytes > mapped_small_bytes)
        std::memcpy(cell.payload, &space_->cells->place, sizeof(SegmentPlace));
    publish(tag);
    return_cells();
}

void MappedSender::push(const Tag& tag, const std::byte* data, std::size_t bytes) {
    std::byte* place = reserve(bytes);
    if (place == nullptr) return;  // out of memory, since can_push() was true; health() reports it
    copy_message(streaming_policy(Writer::copy), place, data, bytes);
    commit(tag, bytes);
}

void MappedSender::publish(const Tag& tag) {
    Cell& cell = cell_of(memory_, position_);
    cell.tag = tag;
    // Sequentially consistent with arm(): either the reader's last look before it sleeps sees this
    // turn, or this thread sees that the reader sleeps. (An exchange costs no more here: this core
    // needs the cache line anyway.)
    cell.turn.store(position_ + 1, std::memory_order_seq_cst);
    ++position_;
    if (control_->reader_sleeps.load(std::memory_order_seq_cst) != 0) peer_.doorbell->ring();
}

void MappedSender::arm(bool on) {
    control_->writer_sleeps.store(on ? 1 : 0, std::memory_order_seq_cst);
}

Code MappedSender::health() const {
    if (no_memory_) return Code::no_memory;
    return peer_.life->gone.load(std::memory_order_acquire) ? Code::peer_lost : Code::ok;
}

MappedReceiver::MappedReceiver(std::byte* memory, std::shared_ptr<const SegmentTable> segments,
                               MappedPeer peer)
    : segments_(std::move(segments)),
      peer_(std::move(peer)),
      memory_(memory),
      control_(control_of(memory)),
      process_(::getpid()) {}

MappedReceiver::~MappedReceiver() {
    // In a forked child: only the parent's receiver may tell the sender that it closed.
    if (process_ != ::getpid()) return;
    // Pairs with mapped_reader_closed(): this receiver's reads come before the store, so the sender
    // may overwrite the memory.
    control_->reader_closed.store(1, std::memory_order_release);
}

bool MappedReceiver::has_message() const {
    // seq_cst because this is also the last look between arm(true) and sleeping. On x86 the load
    // costs no more than an acquire.
    return cell_of(memory_, position_).turn.load(std::memory_order_seq_cst) == position_ + 1;
}

Receiver::PeekedMessage MappedReceiver::peek(const Tag& expected, std::size_t bytes) {
    // Bounded by our own constant: a peer that only sends stale messages cannot keep this thread in
    // the loop.
    for (uint32_t looks = 0; looks <= mapped_cells && has_message(); ++looks) {
        const Cell& cell = cell_of(memory_, position_);
        const Tag got = cell.tag;
        if (got.is_stale(expected)) {
            release();
            continue;
        }
        // The payload's place depends on its size, which is `bytes` only if the tags are equal.
        if (bytes <= mapped_inline_bytes || got != expected)
            return {.data = cell.payload, .tag = got};
        if (bytes <= mapped_small_bytes)
            return {.data = small_cell(memory_, position_), .tag = got};
        return {.data = large_message(cell), .tag = got};
    }
    return {};
}

// A set of cells may be in a segment that this process has not mapped yet. Then the message counts
// as not arrived, and the arrival of the segment wakes a sleeping thread.
const std::byte* MappedReceiver::large_message(const Cell& cell) {
    SegmentPlace place;
    std::memcpy(&place, cell.payload, sizeof place);
    if (large_cells_ == nullptr || place != large_cells_place_) {
        large_cells_ = segments_->at(place, mapped_cell_set_bytes);
        large_cells_place_ = place;
    }
    return large_cells_ == nullptr ? nullptr
                                   : large_cells_ + index_of(position_) * mapped_cell_bytes;
}

void MappedReceiver::release() {
    Cell& cell = cell_of(memory_, position_);
    // Pairs with the sender's arm() and can_push(), as publish() pairs with this class's arm() and
    // has_message().
    cell.turn.store(position_ + mapped_cells, std::memory_order_seq_cst);
    ++position_;
    if (control_->writer_sleeps.load(std::memory_order_seq_cst) != 0) peer_.doorbell->ring();
}

void MappedReceiver::arm(bool on) {
    control_->reader_sleeps.store(on ? 1 : 0, std::memory_order_seq_cst);
}

Code MappedReceiver::health() const {
    // Loads `gone` first: a message published before the peer was reported gone is visible
    // afterwards.
    const bool gone = peer_.life->gone.load(std::memory_order_acquire);
    return gone && !has_message() ? Code::peer_lost : Code::ok;
}

}  // namespace tutti
