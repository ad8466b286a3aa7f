#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/incoming.h"

namespace tutti::fabric {
namespace {

// Copying this much costs less than keeping the library's buffer and giving it back.
constexpr std::size_t copied_bytes = 1024;

constexpr std::byte nothing{};  // the data of a message without a payload

}  // namespace

bool Incoming::handle_data(Flow& flow, const Header& header, const Arrival& arrival) {
    ReceiveQueue& in = flow.in;
    const uint64_t returned = in.returned.load(std::memory_order_relaxed);
    const uint32_t ahead = header.position - static_cast<uint32_t>(returned);
    const uint64_t position = returned + ahead;
    if (ahead >= credits_per_channel || position < in.released.load(std::memory_order_seq_cst) ||
        in.at(position).state.load(std::memory_order_relaxed) != State::empty) {
        port_.report_protocol_error(
            flow.peer, fmt::format("it sent more on lane {} than its credits allow", header.lane));
        return false;
    }
    ++flow.peer.received;
    in.begun.fetch_add(1, std::memory_order_seq_cst);
    if (SlotStream* const stream = flow.flat.load(std::memory_order_relaxed))
        stream->unread.store(true, std::memory_order_relaxed);
    ReceiveSlot& slot = in.at(position);
    slot.tag = header.tag;
    slot.bytes = header.bytes;
    slot.cell = CellPool::none;
    slot.offered = slot.on_device = false;
    const bool kept = place(flow, position, arrival);
    if (flow.peer.bye_received) peers_.retire_if_done(flow.peer);
    return kept;
}

/// Returns a taken offer if the host can write there; else clears it and returns nullptr.
std::byte* Incoming::unless_on_device(ReceiveQueue& in, std::byte* offered) {
    if (!offered || !in.offer.on_device()) return offered;
    in.offer.clear();
    return nullptr;
}

bool Incoming::place(Flow& flow, uint64_t position, const Arrival& arrival) {
    ReceiveQueue& in = flow.in;
    ReceiveSlot& slot = in.at(position);
    if (!in.live || arrival.bytes == 0) {
        slot.data = &nothing;
        finish(slot);
        return false;
    }
    if (!arrival.data) return place_announced(flow, position, arrival);
    if (!arrival.hold || arrival.bytes <= copied_bytes) return copy(flow, position, arrival);
    slot.hold = arrival.hold;
    slot.data = arrival.data;
    finish(slot);
    return true;
}

// Places the message at once, even if the peer is not waiting for it: in an in-place exchange each
// rank reads only when its own message was sent, so both would wait.
bool Incoming::place_announced(Flow& flow, uint64_t position, const Arrival& arrival) {
    ReceiveQueue& in = flow.in;
    ReceiveSlot& slot = in.at(position);
    slot.hold = arrival.hold;
    std::byte* offered = in.offer.take(slot.tag, slot.bytes, position);
    // The host writes the pieces, so the memory must be the host's.
    if (offered && arrival.at_once) offered = unless_on_device(in, offered);
    if (!offered && !arrival.at_once && in.patient.load(std::memory_order_relaxed)) {
        // Pairs with the lane's offer: either this thread sees the offer, or the lane sees the
        // state.
        slot.state.store(State::announced, std::memory_order_seq_cst);
        offered = in.offer.take(slot.tag, slot.bytes, position);
        if (!offered) {
            waker_.wake(in.sleeper);
            return true;
        }
    }
    if (!find_place(slot, offered)) return true;
    if (!arrival.at_once || !fetch(slot)) to_fetch_.push_back(&slot);
    return true;
}

bool Incoming::copy(Flow& flow, uint64_t position, const Arrival& arrival) {
    ReceiveQueue& in = flow.in;
    ReceiveSlot& slot = in.at(position);
    std::byte* to = unless_on_device(in, in.offer.take(slot.tag, slot.bytes, position));
    slot.offered = to != nullptr;
    if (!to) {
        if (!take_cell(slot)) return false;
        to = in.cells.data(slot.cell);
    }
    std::memcpy(to, arrival.data, arrival.bytes);
    slot.data = to;
    finish(slot);
    return false;
}

/// False: there is no memory, or the peer has too many unread bytes.
bool Incoming::take_cell(ReceiveSlot& slot) {
    Peer& peer = slot.flow->peer;
    slot.cell = slot.flow->in.cells.take(slot.bytes);
    const std::size_t most = limits_.unread_bytes;
    if (slot.cell == CellPool::none)
        port_.mark_lost(peer, "no memory for a message", Culprit::own);
    else if (peer.unread_bytes.load(std::memory_order_relaxed) > most)
        port_.mark_lost(
            peer, fmt::format("it sent more than {} bytes that this rank has not read", most));
    else
        return true;
    return false;
}

/// offered: the lane's memory; nullptr: use a cell. False: as take_cell().
bool Incoming::find_place(ReceiveSlot& slot, std::byte* offered) {
    slot.offered = offered != nullptr;
    slot.on_device = offered && slot.flow->in.offer.on_device();
    slot.to = offered;
    if (!offered) {
        if (!take_cell(slot)) return false;
        slot.to = slot.flow->in.cells.data(slot.cell);
    }
    slot.state.store(State::fetching, std::memory_order_relaxed);
    return true;
}

/// False: the library has no room.
bool Incoming::fetch(ReceiveSlot& slot) {
    if (slot.flow->peer.state == Peer::State::gone) return true;
    slot.begun = true;
    const Progress result =
        slot.on_device
            ? port_.port().devices()->fetch_to_device(slot.hold, slot.to, slot.bytes, &slot)
            : port_.port().fetch(slot.hold, slot.to, slot.bytes, &slot);
    if (result == Progress::pending) return true;
    slot.begun = false;
    if (result == Progress::done) {
        finish(slot);
    } else if (result == Progress::failed) {
        port_.mark_lost(slot.flow->peer, "receiving from it failed");
    }
    return result != Progress::busy;
}

void Incoming::finish(ReceiveSlot& slot) {
    Flow& flow = *slot.flow;
    ReceiveQueue& in = flow.in;
    if (slot.state.load(std::memory_order_relaxed) == State::fetching) slot.data = slot.to;
    if (slot.offered) in.offer.clear();
    // Pairs with the lane's load of the state: the message is visible before it.
    slot.state.store(State::whole, std::memory_order_seq_cst);
    waker_.wake(in.sleeper);
    if (!in.live) in.drop();
    if (in.credits_due()) ready_.append(flow);
    if (flow.peer.bye_received) peers_.retire_if_done(flow.peer);
}

void Incoming::fetch_placed() {
    std::size_t waiting = 0;
    // A fetch may add slots to the list.
    for (std::size_t i = 0; i < to_fetch_.size(); ++i) {
        ReceiveSlot* slot = to_fetch_[i];
        if (!fetch(*slot)) to_fetch_[waiting++] = slot;
    }
    to_fetch_.resize(waiting);
}

bool Incoming::is_arriving(const Flow& flow) const {
    return std::any_of(flow.in.slots.begin(), flow.in.slots.end(), [this](const ReceiveSlot& slot) {
        return slot.begun ||
               std::find(to_fetch_.begin(), to_fetch_.end(), &slot) != to_fetch_.end();
    });
}

// ---- for the lane ----------------------------------------------------------------------------

void Incoming::place_next(Flow& flow) {
    ReceiveQueue& in = flow.in;
    const uint64_t position = in.released.load(std::memory_order_relaxed);
    ReceiveSlot& slot = in.at(position);
    if (slot.state.load(std::memory_order_relaxed) != State::announced) return;
    if (find_place(slot, in.offer.take(slot.tag, slot.bytes, position))) to_fetch_.push_back(&slot);
}

// Drops unread messages, now and when more arrive, so that the sender gets its credits.
void Incoming::close(Flow& flow) {
    flow.in.live = false;
    for (ReceiveSlot& slot : flow.in.slots)
        if (slot.state.load(std::memory_order_relaxed) == State::announced) finish(slot);
    flow.in.drop();
}

void Incoming::fetch_to_cell(ReceiveSlot& slot) {
    CellPool& cells = slot.flow->in.cells;
    const int cell = slot.on_device ? CellPool::none : cells.take(slot.bytes);
    if (cell == CellPool::none) return;
    std::memcpy(cells.data(cell), slot.to, slot.bytes);
    if (slot.begun && !port_.move(&slot, cells.data(cell))) return cells.give(cell);
    slot.cell = cell;
    slot.to = cells.data(cell);
    slot.offered = false;
}

bool Incoming::save_offered(ReceiveSlot& slot) {
    slot.offered = false;
    // The host cannot read it: the message stays in the GPU's memory.
    if (slot.on_device) return true;
    if (copy_to_cell(slot.flow->in.cells, slot)) return true;
    slot.tag = {};  // makes the message stale for every operation
    return false;
}

}  // namespace tutti::fabric
