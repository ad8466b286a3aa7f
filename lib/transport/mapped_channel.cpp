#include "transport/mapped_channel.h"

#include <unistd.h>

#include <cassert>
#include <cstring>
#include <new>

#include "base/log.h"
#include "transport/shared_memory.h"

namespace tutti {
namespace detail {

struct Cell {
    std::atomic<uint64_t> turn;
    Tag tag;
    std::byte payload[mapped_inline_bytes];
};
static_assert(sizeof(Cell) == cache_line_bytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free, "turns are shared between processes");

struct Control {
    std::atomic<uint32_t> reader_sleeps;
    std::atomic<uint32_t> writer_sleeps;
};

}  // namespace detail

namespace {

using detail::Cell;
using detail::Control;

constexpr std::size_t header_bytes = 4096;
static_assert(no_share_bytes * (mapped_cells + 1) <= header_bytes);
static_assert(mapped_cells >= 2 && (mapped_cells & (mapped_cells - 1)) == 0);

Control* control_of(std::byte* memory) {
    return reinterpret_cast<Control*>(memory);
}

Cell& cell_of(std::byte* memory, uint64_t position) {
    const std::size_t index = position % mapped_cells;
    return *reinterpret_cast<Cell*>(memory + no_share_bytes * (index + 1));
}

// Where a message of that size lies, outside the header line.
std::byte* area_of(std::byte* memory, uint64_t position, std::size_t bytes) {
    assert(bytes <= mapped_cell_bytes);
    const std::size_t index = position % mapped_cells;
    if (bytes <= mapped_small_bytes) return memory + header_bytes + index * mapped_small_bytes;
    return memory + mapped_eager_bytes + index * mapped_cell_bytes;
}

}  // namespace

void Doorbell::ring() const {
    const uint64_t one = 1;
    // A full counter means that the sleeper has news already; other failures have no one to tell.
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void format_mapped_channel(std::byte* memory) {
    new (memory) Control{};
    for (uint64_t i = 0; i < mapped_cells; ++i) {
        Cell* cell = new (&cell_of(memory, i)) Cell{};
        cell->turn.store(i, std::memory_order_release);
    }
}

MappedSender::MappedSender(MappedHalf half, UniqueFd backing)
    : half_(std::move(half)),
      backing_(std::move(backing)),
      control_(control_of(half_.memory.get())) {}

bool MappedSender::can_push() {
    // Pairs with release(): the reader is done with the payload before we overwrite it.
    return cell_of(half_.memory.get(), position_).turn.load(std::memory_order_acquire) == position_;
}

bool MappedSender::back_large_cells() {
    if (no_memory_) return false;
    const auto backed =
        back_memory(backing_.get(), mapped_eager_bytes, mapped_cells * mapped_cell_bytes);
    if (!backed) {
        log::error("shm: no memory for large messages: {}", backed.error().message);
        no_memory_ = true;
        return false;
    }
    backing_.reset();
    return true;
}

std::byte* MappedSender::reserve(std::size_t bytes) {
    if (!can_push()) return nullptr;
    if (bytes <= mapped_inline_bytes) return staging_.data();
    if (bytes > mapped_small_bytes && backing_ && !back_large_cells()) return nullptr;
    return area_of(half_.memory.get(), position_, bytes);
}

void MappedSender::commit(const Tag& tag, std::size_t bytes) {
    if (bytes <= mapped_inline_bytes) {
        Cell& cell = cell_of(half_.memory.get(), position_);
        std::memcpy(cell.payload, staging_.data(), mapped_inline_bytes);
    }
    publish(tag);
}

void MappedSender::push(const Tag& tag, const std::byte* data, std::size_t bytes) {
    std::byte* place = reserve(bytes);
    if (place == nullptr) return;  // out of memory, since can_push() was true: health() says so
    if (bytes > 0) std::memcpy(place, data, bytes);
    commit(tag, bytes);
}

void MappedSender::publish(const Tag& tag) {
    Cell& cell = cell_of(half_.memory.get(), position_);
    cell.tag = tag;
    // Sequentially consistent with arm(): either the reader's last look before it sleeps sees this
    // turn, or we see that it sleeps. (An exchange costs nothing here: the line must come anyway.)
    cell.turn.store(position_ + 1, std::memory_order_seq_cst);
    ++position_;
    if (control_->reader_sleeps.load(std::memory_order_seq_cst) != 0) half_.doorbell->ring();
}

void MappedSender::arm(bool on) {
    control_->writer_sleeps.store(on ? 1 : 0, std::memory_order_seq_cst);
}

Code MappedSender::health() const {
    if (no_memory_) return Code::no_memory;
    return half_.peer->gone.load(std::memory_order_acquire) ? Code::peer_lost : Code::ok;
}

MappedReceiver::MappedReceiver(MappedHalf half)
    : half_(std::move(half)), control_(control_of(half_.memory.get())) {}

bool MappedReceiver::has_message() const {
    // seq_cst because this is also the last look between arm(true) and sleeping; as cheap as
    // acquire where it matters.
    return cell_of(half_.memory.get(), position_).turn.load(std::memory_order_seq_cst) ==
           position_ + 1;
}

Receiver::Message MappedReceiver::peek(const Tag& expected, std::size_t bytes) {
    // Bounded by our own constant: a peer that only sends stale messages does not keep us here.
    for (uint32_t looks = 0; looks <= mapped_cells && has_message(); ++looks) {
        Cell& cell = cell_of(half_.memory.get(), position_);
        const Tag got = cell.tag;
        if (match(expected, got) == TagMatch::stale) {
            release();
            continue;
        }
        const std::byte* data = bytes <= mapped_inline_bytes
                                    ? cell.payload
                                    : area_of(half_.memory.get(), position_, bytes);
        return {.data = data, .tag = got};
    }
    return {};
}

void MappedReceiver::release() {
    Cell& cell = cell_of(half_.memory.get(), position_);
    cell.turn.store(position_ + mapped_cells, std::memory_order_seq_cst);  // as in publish()
    ++position_;
    if (control_->writer_sleeps.load(std::memory_order_seq_cst) != 0) half_.doorbell->ring();
}

void MappedReceiver::arm(bool on) {
    control_->reader_sleeps.store(on ? 1 : 0, std::memory_order_seq_cst);
}

Code MappedReceiver::health() const {
    // In this order: what was published before the news came is seen after it.
    const bool gone = half_.peer->gone.load(std::memory_order_acquire);
    return gone && !has_message() ? Code::peer_lost : Code::ok;
}

}  // namespace tutti
