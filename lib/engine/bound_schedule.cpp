#include "engine/bound_schedule.h"

#include <algorithm>

namespace tutti {

TileMap::TileMap(std::size_t count, std::size_t tile_elements, uint32_t chunks,
                 std::size_t element_bytes)
    : tile_elements_(std::max<std::size_t>(tile_elements, 1)) {
    tiles_ = static_cast<uint32_t>(
        std::max<std::size_t>(1, (count + tile_elements_ - 1) / tile_elements_));
    // Chunks start at cache lines where they are long enough for that not to unbalance them.
    const std::size_t line = std::max<std::size_t>(1, cache_line_bytes / element_bytes);
    const auto cut = [&](std::size_t length) {
        std::size_t each = (length + chunks - 1) / chunks;
        if (each >= 16 * line) each = round_up(each, line);
        std::vector<std::size_t> starts(chunks + 1);
        for (uint32_t c = 0; c <= chunks; ++c) starts[c] = std::min(c * each, length);
        return starts;
    };
    full_ = cut(std::min(tile_elements_, count));
    last_ = cut(count - (tiles_ - 1) * tile_elements_);
}

void BoundSchedule::start(const Tag& tag, const void* in, void* out) {
    tag_ = tag;
    // Input regions are only read; one pointer type keeps place() one function.
    in_ = static_cast<std::byte*>(const_cast<void*>(in));
    out_ = static_cast<std::byte*>(out);
    trouble_ = {};
    lanes_left_ = 0;
    for (BoundLane& lane : p_.lanes) {
        lane.tile = lane.steps.empty() ? p_.tiles.tiles() : 0;
        lane.step = 0;
        lane.offered = false;
        lanes_left_ += !lane.steps.empty();
    }
}

Code BoundSchedule::progress() {
    moved_ = false;
    for (BoundLane& lane : p_.lanes) {
        while (lane.tile < p_.tiles.tiles()) {
            const Turn turn = run_step(lane);
            if (turn == Turn::failed) return trouble_.code;
            if (turn == Turn::waiting) break;
            moved_ = true;
            lane.offered = false;
            if (++lane.step < lane.steps.size()) continue;
            lane.step = 0;
            if (++lane.tile == p_.tiles.tiles()) --lanes_left_;
        }
    }
    if (lanes_left_ > 0) return Code::in_progress;
    for (const BoundLane& lane : p_.lanes)
        if (!drained(lane)) return Code::in_progress;
    return Code::ok;
}

bool BoundSchedule::drained(const BoundLane& lane) const {
    return std::all_of(lane.pushes.begin(), lane.pushes.end(),
                       [](Sender* sender) { return sender->drained(); });
}

std::byte* BoundSchedule::place(const Region& region, uint32_t tile,
                                std::size_t element_bytes) const {
    if (region.space == Space::scratch) return p_.scratch.get() + region.slot * p_.slot_bytes;
    const std::size_t element = p_.tiles.base(tile) + p_.tiles.at(tile, region.chunk);
    return (region.space == Space::input ? in_ : out_) + element * element_bytes;
}

bool BoundSchedule::may_start(const BoundLane& lane, const BoundStep& step) const {
    if (step.after) {
        const BoundLane& other = p_.lanes[step.after.lane];
        const bool finished =
            other.tile > lane.tile || (other.tile == lane.tile && other.step > step.after.step);
        if (!finished) return false;
    }
    if (step.send && !step.build && !step.send->can_push()) return false;
    return !step.settle || drained(lane);
}

BoundSchedule::Turn BoundSchedule::receive(BoundLane& lane, const BoundStep& step,
                                           std::size_t bytes, const void*& data) {
    Receiver* receiver = step.recv->receiver.load(std::memory_order_acquire);
    if (!receiver) return Turn::waiting;
    if (step.offer && !lane.offered) {
        receiver->offer(tag_, place(step.out, lane.tile, step.result_bytes), bytes);
        lane.offered = true;
    }
    const Receiver::Message message = receiver->peek(tag_, bytes);
    if (!message.data) return Turn::waiting;
    if (message.tag != tag_) {
        trouble_ = {Code::mismatch, step.recv->peer, message.tag};
        return Turn::failed;
    }
    data = message.data;
    return Turn::advanced;
}

void BoundSchedule::combine(const BoundStep& step, std::size_t count, const void* data,
                            const void* local, std::byte* out, std::byte* built) const {
    ReduceArgs args;
    args.dst = out ? out : built;
    args.also = out ? built : nullptr;
    args.count = count;
    args.divisor = p_.divisor;
    if (data && local) {
        args.a = step.local_first ? local : data;
        args.b = step.local_first ? data : local;
    } else {
        args.a = data ? data : local;
        // A message that arrived where it belongs, or a local value that is already there.
        const uint8_t own_bytes = data ? step.in_bytes : step.local_bytes;
        if (args.a == args.dst && own_bytes == step.result_bytes && !args.also && p_.divisor == 1)
            return;
    }
    step.kernel(args);
}

BoundSchedule::Turn BoundSchedule::run_step(BoundLane& lane) {
    const BoundStep& step = lane.steps[lane.step];
    if (!may_start(lane, step)) return Turn::waiting;

    const std::size_t count =
        p_.tiles.at(lane.tile, step.chunk + step.chunks) - p_.tiles.at(lane.tile, step.chunk);
    const std::size_t sent_bytes = count * step.result_bytes;
    const void* data = nullptr;
    if (step.recv) {
        const Turn turn = receive(lane, step, count * step.in_bytes, data);
        if (turn != Turn::advanced) return turn;
    }
    std::byte* built = nullptr;
    if (step.build) {
        built = step.send->reserve(sent_bytes);
        if (!built) return Turn::waiting;
    }
    std::byte* const local = step.local ? place(step.local, lane.tile, step.local_bytes) : nullptr;
    std::byte* const out = step.out ? place(step.out, lane.tile, step.result_bytes) : nullptr;
    if (step.kernel) combine(step, count, data, local, out, built);
    if (step.recv) step.recv->receiver.load(std::memory_order_relaxed)->release();
    if (step.build) {
        step.send->commit(tag_, sent_bytes);
    } else if (step.send) {
        step.send->push(tag_, out ? out : local, sent_bytes);
    }
    return Turn::advanced;
}

void BoundSchedule::cancel() {
    for (Sender* sender : p_.senders) sender->cancel();
    for (ReceiverSlot* slot : p_.receivers)
        if (Receiver* r = slot->receiver.load(std::memory_order_acquire)) r->cancel();
    for (BoundLane& lane : p_.lanes) lane.tile = p_.tiles.tiles();
}

// All channels, not only those the lanes stand at: a lane may move between arm(true) and
// arm(false).
void BoundSchedule::arm(bool on) {
    for (Sender* sender : p_.senders) sender->arm(on);
    for (ReceiverSlot* slot : p_.receivers)
        if (Receiver* r = slot->receiver.load(std::memory_order_acquire)) r->arm(on);
}

// A lost peer is the control plane's news, with a name and for everyone; the rest is ours alone.
Code BoundSchedule::health() const {
    for (const Sender* sender : p_.senders) {
        const Code code = sender->health();
        if (code != Code::ok && code != Code::peer_lost) return code;
    }
    return Code::ok;
}

Rank BoundSchedule::waits_for() const {
    for (const BoundLane& lane : p_.lanes) {
        if (lane.tile >= p_.tiles.tiles()) continue;
        const BoundStep& step = lane.steps[lane.step];
        if (step.recv) return step.recv->peer;
    }
    return nobody;
}

}  // namespace tutti
