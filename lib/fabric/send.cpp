#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/outgoing.h"

namespace tutti::fabric {

void Outgoing::send_ready() {
    while (!ready_.empty()) {
        Flow& flow = *ready_.pop();
        // One message per turn, then the flow goes to the end, so that no channel delays others.
        if (port_.is_busy(flow.peer))
            held_up_.push_back(&flow);
        else if (send_next(flow))
            ready_.append(flow);
    }
    for (Flow* flow : held_up_) ready_.append(*flow);
    held_up_.clear();
    if (!late_credits_.empty()) send_late_credits();
}

bool Outgoing::send_next(Flow& flow) {
    // make_ready() puts the flow on the list again.
    if (flow.peer.state != Peer::State::ready) return false;
    if (flow.open_due) {
        if (!port_.send(flow.peer, port_.header(Kind::open, flow.peer, flow.id))) return true;
        flow.open_due = false;
    }
    if (flow.out.pushed.load(std::memory_order_seq_cst) != flow.out.begun)
        return !send_message(flow) ||
               flow.out.pushed.load(std::memory_order_relaxed) != flow.out.begun;
    return flow.in.credits_due() && !send_credits(flow);
}

bool Outgoing::send_message(Flow& flow) {
    const uint64_t position = flow.out.begun;
    const SendQueue::QueuedMessage& message = flow.out.at(position);
    flow.in.reclaim(port_.port());
    Header out = port_.header(Kind::data, flow.peer, flow.id);
    out.credits = flow.in.owed(flow.in.reclaimed);
    out.bytes = message.bytes;
    out.position = static_cast<uint32_t>(position);
    out.tag = message.tag;
    Flow::Sent& under_way = flow.under_way[position % credits_per_channel];
    under_way.position = position;
    under_way.done = false;
    // Before the call: during it the library may report the message as sent.
    flow.out.begun = position + 1;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&out);
    const Progress result =
        message.on_device
            ? port_.port().devices()->send_from_device(flow.peer.rank, bytes, message.data,
                                                       message.bytes, &under_way)
            : port_.port().send(flow.peer.rank, bytes, message.data, message.bytes, &under_way);
    if (!port_.accepted(result, flow.peer)) {
        flow.out.begun = position;
        return false;
    }
    ++flow.peer.sent;
    flow.in.give_back(flow.in.reclaimed);
    if (result != Progress::pending) complete(flow, position, result == Progress::done);
    return true;
}

bool Outgoing::send_credits(Flow& flow) {
    flow.in.reclaim(port_.port());
    Header out = port_.header(Kind::credit, flow.peer, flow.id);
    out.credits = flow.in.owed(flow.in.reclaimed);
    if (!port_.send(flow.peer, out)) return false;
    flow.in.give_back(flow.in.reclaimed);
    return true;
}

void Outgoing::send_late_credits() {
    late_credits_.send([this](const ChannelId& id) {
        Peer* const peer = peers_.find(id.peer);
        if (!peer || peer->state != Peer::State::ready) return true;
        Header out = port_.header(Kind::credit, *peer, id);
        out.credits = 1;
        return !port_.is_busy(*peer) && port_.send(*peer, out);
    });
}

void Outgoing::complete(Flow& flow, uint64_t position, bool gone) {
    SendQueue& out = flow.out;
    SendQueue::QueuedMessage& message = out.at(position);
    Flow::Sent& under_way = flow.under_way[position % credits_per_channel];
    under_way.done = true;
    // A peer that has said bye has received all messages that it waited for.
    under_way.lost = !gone && !flow.peer.bye_received;
    out.staging.give(std::exchange(message.cell, CellPool::none));
    uint64_t sent = out.sent.load(std::memory_order_relaxed);
    const uint64_t before = sent;
    // Counts messages in order, though the library completes them in any order: places are reused
    // by position. A lost message is never counted, else a lane that reads `sent` before `health`
    // would take it for sent.
    const auto has_gone = [&](uint64_t p) {
        const Flow::Sent& one = flow.under_way[p % credits_per_channel];
        return one.done && !one.lost;
    };
    while (sent != out.begun && has_gone(sent)) ++sent;
    if (sent == before) return;
    // Pairs with drained(): the caller's memory is free once the lane sees the count.
    out.sent.store(sent, std::memory_order_seq_cst);
    out.allow(sent);
    waker_.wake(out.sleeper);
}

bool Outgoing::handle_credits(Flow& flow, uint32_t credits) {
    if (!flow.out.grant(credits, flow.out.begun)) return false;
    // A credit may arrive before the library gives back the message that it was for.
    flow.out.allow(flow.out.sent.load(std::memory_order_relaxed));
    waker_.wake(flow.out.sleeper);
    return true;
}

// ---- for a lane that gives up ----------------------------------------------------------------

/// Gives the library a copy of a message that it has; if it accepts none, the message stays in the
/// caller's memory.
void Outgoing::copy_begun(Flow& flow, uint64_t position) {
    SendQueue& out = flow.out;
    SendQueue::QueuedMessage& message = out.at(position);
    Flow::Sent& under_way = flow.under_way[position % credits_per_channel];
    if (under_way.done || message.cell != CellPool::none || message.on_device) return;
    const int cell = out.staging.take(message.bytes);
    if (cell == CellPool::none) return;
    if (message.bytes > 0) std::memcpy(out.staging.data(cell), message.data, message.bytes);
    if (port_.move(&under_way, out.staging.data(cell)))
        message.cell = cell;
    else
        out.staging.give(cell);
}

// The peer still receives pushed messages, from copies.
bool Outgoing::copy_unsent(Flow& flow) {
    SendQueue& out = flow.out;
    for (uint64_t p = out.sent.load(std::memory_order_relaxed); p < out.begun; ++p)
        copy_begun(flow, p);
    return out.copy_queued();
}

bool Outgoing::borrows(Flow& flow) {
    SendQueue& out = flow.out;
    const uint64_t pushed = out.pushed.load(std::memory_order_relaxed);
    for (uint64_t p = out.sent.load(std::memory_order_relaxed); p < pushed; ++p) {
        const bool left = p < out.begun && flow.under_way[p % credits_per_channel].done;
        if (!left && out.at(p).cell == CellPool::none) return true;
    }
    return false;
}

}  // namespace tutti::fabric
