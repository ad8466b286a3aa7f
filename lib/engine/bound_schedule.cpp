#include "engine/bound_schedule.h"

#include <algorithm>

#include "base/buffers.h"
#include "reduce/streaming_stores.h"

namespace tutti {
void BoundSchedule::start(const Tag& tag, const void* in, void* out) {
    // The schedule only reads input regions; with one pointer type, place() is one function.
    in_ = static_cast<std::byte*>(const_cast<void*>(in));
    out_ = static_cast<std::byte*>(out);
    streams_ = p_.window.slots == 0 && are_apart(in, p_.in_bytes, out, p_.out_bytes);
    lanes_left_ = 0;
    allowed_ = p_.window.slots > 0 ? 0 : p_.layout.tiles();
    for (BoundLane& lane : p_.lanes) {
        lane.tile = lane.steps.empty() ? p_.layout.tiles() : 0;
        lane.step = 0;
        lane.tag = tag;
        lane.offered = lane.placed = false;
        lanes_left_ += !lane.steps.empty();
    }
}

Poll BoundSchedule::progress() {
    bool moved = false;
    for (BoundLane& lane : p_.lanes) {
        while (lane.tile < allowed_) {
            const StepOutcome turn = run_step(lane);
            if (turn == StepOutcome::failed) return failure_;
            if (turn == StepOutcome::waiting) break;
            moved = true;
            lane.offered = lane.placed = false;
            if (++lane.step < lane.steps.size()) continue;
            lane.step = 0;
            if (++lane.tile == p_.layout.tiles()) --lanes_left_;
        }
    }
    const bool over = lanes_left_ == 0 && sends_are_over();
    return {over ? Code::ok : Code::in_progress, moved};
}

void BoundSchedule::allow(uint32_t fills) {
    allowed_ = std::min(p_.layout.tiles(), fills * p_.window.tiles);
}

uint32_t BoundSchedule::finished() const {
    uint32_t tiles = p_.layout.tiles();
    for (const BoundLane& lane : p_.lanes) tiles = std::min(tiles, lane.tile);
    return tiles == p_.layout.tiles() ? p_.window.fills : tiles / p_.window.tiles;
}

bool BoundSchedule::drained() const {
    return std::all_of(p_.lanes.begin(), p_.lanes.end(),
                       [this](const BoundLane& lane) { return drained(lane); });
}

/// Whether every pushed message was sent. A peer that is gone needs no message: this rank has its
/// result.
bool BoundSchedule::sends_are_over() const {
    for (const BoundLane& lane : p_.lanes)
        for (Sender* sender : lane.pushes) {
            if (sender->all_sent()) continue;
            if (sender->health() == Code::ok || !sender->drained()) return false;
        }
    return true;
}

bool BoundSchedule::untaken() const {
    for (const BoundLane& lane : p_.lanes)
        for (Sender* sender : lane.pushes)
            if (!sender->all_sent()) return true;
    return false;
}

bool BoundSchedule::drained(const BoundLane& lane) const {
    return std::ranges::all_of(lane.pushes, &Sender::drained);
}

std::byte* BoundSchedule::address(const Region& region, uint32_t tile, uint32_t slot_offset,
                                  std::size_t offset, std::size_t element_bytes) const {
    if (!region) return nullptr;
    if (region.space == Space::scratch)
        return p_.scratch.get() + (region.slot + slot_offset) * p_.slot_bytes;
    if (p_.window.slots > 0) offset = p_.window.place(region.space, tile, offset);
    return (region.space == Space::input ? in_ : out_) + offset * element_bytes;
}

Layout::Piece BoundSchedule::piece(const Region& region, uint32_t tile, uint32_t index) const {
    return p_.layout.piece(region.space, tile, p_.schedule.chunk_at(region.chunk, index));
}

// With blocks of one length, all tiles but the last are equal.
BoundStep::Position BoundSchedule::plain_place(const BoundStep& step, uint32_t tile) const {
    if (tile + 1 == p_.layout.tiles()) return step.last;
    return {step.first.local + tile * p_.tile_elements, step.first.out + tile * p_.tile_elements,
            step.first.count};
}

std::size_t BoundSchedule::count_of(const BoundStep& step, uint32_t tile) const {
    const Region& extent = step.local ? step.local : step.out;
    std::size_t count = 0;
    for (uint32_t i = 0; i < step.chunks; ++i) count += piece(extent, tile, i).count;
    return count;
}

void BoundSchedule::place(BoundLane& lane, const BoundStep& step) const {
    lane.at = {0, 0, count_of(step, lane.tile)};
    if (step.one_piece && step.local) lane.at.local = piece(step.local, lane.tile, 0).offset;
    if (step.one_piece && step.out) lane.at.out = piece(step.out, lane.tile, 0).offset;
    lane.placed = true;
    if (!p_.tag_by_block) return;
    const Region& extent = step.local ? step.local : step.out;
    lane.tag.count = p_.layout.block_count(extent.space, extent.chunk);
    lane.later_part = p_.layout.later_part(extent.chunk);
}

bool BoundSchedule::may_start(const BoundLane& lane, const BoundStep& step) const {
    if (step.after) {
        const BoundLane& other = p_.lanes[step.after.lane];
        const bool finished =
            other.tile > lane.tile || (other.tile == lane.tile && other.step > step.after.step);
        if (!finished) return false;
    }
    if (step.send && !step.build && !step.send->can_push()) return false;
    return !step.needs_drain || drained(lane);
}

BoundSchedule::StepOutcome BoundSchedule::receive(BoundLane& lane, const BoundStep& step,
                                                  const BoundStep::Position& at,
                                                  const void*& data) {
    Receiver* receiver = step.recv->receiver.load(std::memory_order_acquire);
    if (!receiver) return StepOutcome::waiting;
    const std::size_t bytes = at.count * step.in_bytes;
    if (step.offer && !lane.offered) {
        receiver->offer(lane.tag, address(step.out, lane.tile, 0, at.out, step.result_bytes),
                        bytes);
        lane.offered = true;
    }
    const Receiver::PeekedMessage message = receiver->peek(lane.tag, bytes);
    if (!message.data) return StepOutcome::waiting;
    if (message.tag != lane.tag) {
        failure_ = {{Code::mismatch, step.recv->peer, 0, {}}, message.tag};
        return StepOutcome::failed;
    }
    data = message.data;
    return StepOutcome::advanced;
}

/// Writes a result to `out`, to the channel's memory, or to `out` first and then by a copy to the
/// channel's memory. A kernel that stored to both would wait with each store to `out` for the store
/// to the channel, whose cache line the reader's core has; long copies do not fetch lines first.
void BoundSchedule::combine(const BoundStep& step, std::size_t count, const void* data,
                            const void* local, const Results& to) const {
    ReduceArgs args;
    args.dst = to.out ? to.out : to.built;
    args.count = count;
    args.divisor = p_.divisor;
    args.user = &p_.function;
    bool there = false;
    if (data && local) {
        args.a = step.local_first ? local : data;
        args.b = step.local_first ? data : local;
    } else {
        args.a = data ? data : local;
        // Either the message arrived in the output, or the local value is there already.
        const uint8_t own_bytes = data ? step.in_bytes : step.local_bytes;
        there = args.a == args.dst && own_bytes == step.result_bytes && p_.divisor == 1;
    }
    if (!there) (to.past_cache ? step.streamed : step.kernel)(args);
    if (to.out && to.built && count > 0)
        copy_message(step.send->streaming_policy(Writer::copy), to.built, to.out,
                     count * step.result_bytes);
}

void BoundSchedule::combine_pieces(const BoundStep& step, uint32_t tile, const void* data,
                                   Results to) const {
    const auto* arrived = static_cast<const std::byte*>(data);
    for (uint32_t i = 0; i < step.chunks; ++i) {
        const uint32_t slot = step.slots.offset(i);
        const Layout::Piece local = step.local ? piece(step.local, tile, i) : Layout::Piece{};
        const Layout::Piece out = step.out ? piece(step.out, tile, i) : Layout::Piece{};
        const std::size_t count = step.local ? local.count : out.count;
        to.out = address(step.out, tile, slot, out.offset, step.result_bytes);
        combine(step, count, arrived,
                address(step.local, tile, slot, local.offset, step.local_bytes), to);
        if (arrived) arrived += count * step.in_bytes;
        if (to.built) to.built += count * step.result_bytes;
    }
}

/// Decides whether the kernel uses streaming stores, if that can be faster.
void BoundSchedule::compute(const BoundLane& lane, const BoundStep& step,
                            const BoundStep::Position& at, const void* data, std::byte* out,
                            std::byte* built) const {
    const auto write_result = [&](bool past_cache) {
        const Results to{out, built, past_cache};
        if (!step.one_piece) return combine_pieces(step, lane.tile, data, to);
        combine(step, at.count, data, address(step.local, lane.tile, 0, at.local, step.local_bytes),
                to);
    };
    StreamingStorePolicy* const policy =
        !out && step.streamed ? step.send->streaming_policy(step.writer) : nullptr;
    if (!policy) return write_result(streams_ && step.stream_out);
    policy->measure(at.count * step.result_bytes, write_result);
}

BoundSchedule::StepOutcome BoundSchedule::run_step(BoundLane& lane) {
    const BoundStep& step = lane.steps[lane.step];
    if (!step.plain) {
        if (!lane.placed) place(lane, step);
        // Both ends know that this block has ended: they exchange no message and wait for no
        // credit, since the other end may be gone. If only the two of them know its length, its
        // first message is sent even if empty, because its tag shows whether they agree.
        const bool first = p_.tag_by_block && lane.tile == 0 && !lane.later_part;
        if (lane.at.count == 0 && p_.layout.uneven() && !first) return StepOutcome::advanced;
    }
    if (!may_start(lane, step)) return StepOutcome::waiting;
    const BoundStep::Position at = step.plain ? plain_place(step, lane.tile) : lane.at;
    const void* data = nullptr;
    if (step.recv) {
        const StepOutcome turn = receive(lane, step, at, data);
        if (turn != StepOutcome::advanced) return turn;
    }
    const std::size_t sent_bytes = at.count * step.result_bytes;
    std::byte* built = nullptr;
    if (step.build) {
        built = step.send->reserve(sent_bytes);
        if (!built) return StepOutcome::waiting;
    }
    std::byte* const out = address(step.out, lane.tile, 0, at.out, step.result_bytes);
    if (step.kernel) compute(lane, step, at, data, out, built);
    if (step.recv && !step.keep) step.recv->receiver.load(std::memory_order_relaxed)->release();
    if (step.build) {
        step.send->commit(lane.tag, sent_bytes);
    } else if (step.send) {
        const std::byte* const value =
            out ? out : address(step.local, lane.tile, 0, at.local, step.local_bytes);
        step.send->push(lane.tag, value, sent_bytes);
    }
    return StepOutcome::advanced;
}

void BoundSchedule::cancel() {
    for (Sender* sender : p_.senders) sender->cancel();
    for (ReceiverSlot* slot : p_.receivers)
        if (Receiver* r = slot->receiver.load(std::memory_order_acquire)) r->cancel();
    for (BoundLane& lane : p_.lanes) lane.tile = p_.layout.tiles();
}

// Arms all channels, not only those of the lanes' current steps: a lane may advance between
// arm(true) and arm(false).
void BoundSchedule::arm(bool on) {
    for (Sender* sender : p_.senders) sender->arm(on);
    for (ReceiverSlot* slot : p_.receivers)
        if (Receiver* r = slot->receiver.load(std::memory_order_acquire)) r->arm(on);
}

// The control plane reports lost peers to all ranks, with their names; this reports only errors of
// this rank.
Code BoundSchedule::health() const {
    for (const Sender* sender : p_.senders) {
        const Code code = sender->health();
        if (code != Code::ok && code != Code::peer_lost) return code;
    }
    return Code::ok;
}

Rank BoundSchedule::waits_for() const {
    for (const BoundLane& lane : p_.lanes) {
        if (lane.tile >= p_.layout.tiles()) continue;
        const BoundStep& step = lane.steps[lane.step];
        if (step.recv) return step.recv->peer;
    }
    return nobody;
}

}  // namespace tutti
