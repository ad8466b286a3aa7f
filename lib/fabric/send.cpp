// An engine's outgoing direction: who has something to say, and handing it to the library.
#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/engine.h"

namespace tutti::fabric {

/// Hands over what is queued, to each peer until the library has no room for it: one that takes
/// nothing, or is not there yet, holds up no other.
void FabricEngine::flush() {
    ready_.take_added();
    // The list may grow meanwhile.
    for (std::size_t i = 0; i < talking_.size(); ++i)
        if (!busy(*talking_[i])) say(*talking_[i]);
    if (!talking_.empty()) std::erase_if(talking_, [](const Peer* p) { return p->due == 0; });
    while (!ready_.empty()) {
        Flow& flow = *ready_.pop();
        // To the end after each message, so that one channel does not hold up the others.
        if (busy(flow.peer))
            held_up_.push_back(&flow);
        else if (send_next(flow))
            ready_.append(flow);
    }
    for (Flow* flow : held_up_) ready_.append(*flow);
    held_up_.clear();
    if (!late_credits_.empty()) send_late_credits();
    // Behind the messages of earlier calls, so that one that nobody reads is there before.
    if (contributions_added_.load(std::memory_order_relaxed) &&
        contributions_added_.exchange(false, std::memory_order_seq_cst))
        contributions_held_ = true;
    if (contributions_held_) send_contributions();
}

// ---- what is said to a peer, besides data
// --------------------------------------------------------

void FabricEngine::owe(Peer& peer, uint8_t what) {
    if (peer.due == 0) talking_.push_back(&peer);
    peer.due |= what;
}

/// False: the library had no room.
bool FabricEngine::say(Peer& peer) {
    constexpr std::pair<uint8_t, Kind> order[] = {{Peer::hello_due, Kind::hello},
                                                  {Peer::welcome_due, Kind::welcome},
                                                  {Peer::bye_due, Kind::bye},
                                                  {Peer::farewell_due, Kind::farewell}};
    for (const auto& [bit, kind] : order) {
        if ((peer.due & bit) == 0) continue;
        if (!say(peer, kind)) return false;
        peer.due &= static_cast<uint8_t>(~bit);
    }
    return true;
}

bool FabricEngine::say(Peer& peer, Kind kind) {
    Header out = header(kind, peer);
    out.position = peer.sent;
    const bool hello = kind == Kind::hello;
    out.bytes = hello ? static_cast<uint32_t>(hello_.size()) : 0;
    return accepted(port_->send(peer.rank, reinterpret_cast<const std::byte*>(&out),
                                hello ? hello_.data() : nullptr, out.bytes, nullptr),
                    peer);
}

/// False: again after progress().
bool FabricEngine::accepted(Progress result, Peer& peer) {
    if (result == Progress::failed)
        losing_.push_back({&peer, "sending to it failed", Culprit::peer});
    if (result == Progress::busy) peer.busy_in = polls_;
    return result != Progress::busy;
}

Header FabricEngine::header(Kind kind, const Peer& peer) const {
    Header out;
    out.magic = Header::magic_of(kind);
    out.sender = options_.rank;
    out.nonce = peer.nonce;
    return out;
}

Header FabricEngine::header(Kind kind, const Flow& flow) const {
    Header out = header(kind, flow.peer);
    out.comm = flow.comm;
    out.lane = flow.lane;
    return out;
}

// ---- channels
// ------------------------------------------------------------------------------------

/// Sends a flow's next message. True: it wants another turn.
bool FabricEngine::send_next(Flow& flow) {
    // It is on the list again once the peer is ready.
    if (flow.peer.state != Peer::State::ready) return false;
    if (flow.open_due) {
        const Header out = header(Kind::open, flow);
        if (!accepted(port_->send(flow.peer.rank, reinterpret_cast<const std::byte*>(&out), nullptr,
                                  0, nullptr),
                      flow.peer))
            return true;
        flow.open_due = false;
    }
    if (flow.out.pushed.load(std::memory_order_seq_cst) != flow.out.begun)
        return !send_message(flow) ||
               flow.out.pushed.load(std::memory_order_relaxed) != flow.out.begun;
    return flow.in.credits_due() && !send_credits(flow);
}

bool FabricEngine::send_message(Flow& flow) {
    const uint64_t position = flow.out.begun;
    const SendQueue::Message& message = flow.out.at(position);
    reclaim(flow.in);
    const uint64_t owed = flow.in.reclaimed - flow.in.returned.load(std::memory_order_relaxed);
    Header out = header(Kind::data, flow);
    out.credits = static_cast<uint16_t>(owed);
    out.bytes = message.bytes;
    out.position = static_cast<uint32_t>(position);
    out.tag = message.tag;
    Flow::Sent& under_way = flow.under_way[position % credits_per_channel];
    under_way.position = position;
    under_way.done = false;
    // Before the library has it: it may say that it is sent at once.
    flow.out.begun = position + 1;
    const auto* const bytes = reinterpret_cast<const std::byte*>(&out);
    const Progress result =
        message.on_device
            ? port_->devices()->send_from_device(flow.peer.rank, bytes, message.data, message.bytes,
                                                 &under_way)
            : port_->send(flow.peer.rank, bytes, message.data, message.bytes, &under_way);
    if (!accepted(result, flow.peer)) {
        flow.out.begun = position;
        return false;
    }
    ++flow.peer.sent;
    flow.in.returned.fetch_add(owed, std::memory_order_relaxed);
    if (result != Progress::pending) complete(flow, position, result == Progress::done);
    return true;
}

bool FabricEngine::send_credits(Flow& flow) {
    reclaim(flow.in);
    const uint64_t owed = flow.in.reclaimed - flow.in.returned.load(std::memory_order_relaxed);
    Header out = header(Kind::credit, flow);
    out.credits = static_cast<uint16_t>(owed);
    if (!accepted(port_->send(flow.peer.rank, reinterpret_cast<const std::byte*>(&out), nullptr, 0,
                              nullptr),
                  flow.peer))
        return false;
    flow.in.returned.fetch_add(owed, std::memory_order_relaxed);
    return true;
}

void FabricEngine::send_late_credits() {
    std::erase_if(late_credits_, [this](const auto& late) {
        const auto& [peer, out] = late;
        if (peer->state != Peer::State::ready) return true;
        return !busy(*peer) &&
               accepted(port_->send(peer->rank, reinterpret_cast<const std::byte*>(&out), nullptr,
                                    0, nullptr),
                        *peer);
    });
}

void FabricEngine::sent(void* context, Code code) {
    if (!context) return;
    const auto& under_way = *static_cast<Flow::Sent*>(context);
    complete(*under_way.flow, under_way.position, code == Code::ok);
}

/// The library has given a message back, gone or not.
void FabricEngine::complete(Flow& flow, uint64_t position, bool gone) {
    SendQueue& out = flow.out;
    SendQueue::Message& message = out.at(position);
    Flow::Sent& under_way = flow.under_way[position % credits_per_channel];
    under_way.done = true;
    // Who has said bye has had all that it waited for.
    under_way.lost = !gone && !flow.peer.bye_received;
    if (message.cell != CellPool::none)
        out.staging.give(std::exchange(message.cell, CellPool::none));
    uint64_t sent = out.sent.load(std::memory_order_relaxed);
    const uint64_t before = sent;
    // In order, though the library finishes them as it likes: places are used again by position.
    // What is lost is never counted: who looks before the peer is said to be lost would take it for
    // sent.
    const auto has_gone = [&](uint64_t p) {
        const Flow::Sent& one = flow.under_way[p % credits_per_channel];
        return one.done && !one.lost;
    };
    while (sent != out.begun && has_gone(sent)) ++sent;
    if (sent == before) return;
    // Pairs with drained(): the caller's memory is free once it sees the count.
    out.sent.store(sent, std::memory_order_seq_cst);
    allow(flow);
    wake(out.sleeper);
}

/// A credit may come back before the library lets go of the message that it was for.
void FabricEngine::allow(Flow& flow) {
    const uint64_t sent = flow.out.sent.load(std::memory_order_relaxed);
    const uint64_t allowed = std::min(flow.granted, sent + credits_per_channel);
    if (allowed != flow.out.allowed.load(std::memory_order_relaxed))
        flow.out.allowed.store(allowed, std::memory_order_seq_cst);
}

/// If the library can be told where a message lies that it has: else it stays where it is.
void FabricEngine::send_from_copy(Flow& flow, uint64_t position) {
    SendQueue& out = flow.out;
    SendQueue::Message& message = out.at(position);
    Flow::Sent& under_way = flow.under_way[position % credits_per_channel];
    if (under_way.done || message.cell != CellPool::none || message.on_device) return;
    const int cell = out.staging.take(message.bytes);
    if (cell == CellPool::none) return;
    if (message.bytes > 0) std::memcpy(out.staging.data(cell), message.data, message.bytes);
    if (port_->move(&under_way, out.staging.data(cell)))
        message.cell = cell;
    else
        out.staging.give(cell);
}

// What was pushed is delivered all the same, from copies. What the library is moving out of the
// caller's memory, and cannot be told of a copy, is waited for, and so is what lies in a GPU's.
void FabricEngine::cancel_sends(Flow& flow) {
    if (!enter()) return;
    SendQueue& out = flow.out;
    const uint64_t begun = out.begun;
    const uint64_t pushed = out.pushed.load(std::memory_order_relaxed);
    for (uint64_t p = out.sent.load(std::memory_order_relaxed);
         flow.peer.state != Peer::State::gone && p < begun; ++p)
        send_from_copy(flow, p);
    for (uint64_t p = begun; flow.peer.state != Peer::State::gone && p < pushed; ++p) {
        SendQueue::Message& message = out.at(p);
        if (message.cell != CellPool::none || message.on_device) continue;
        const int cell = out.staging.take(message.bytes);
        if (cell == CellPool::none) {
            lose(flow.peer, "no memory to finish what was being sent", true, Culprit::own);
            break;
        }
        message.cell = cell;
        if (message.bytes > 0) std::memcpy(out.staging.data(cell), message.data, message.bytes);
        message.data = out.staging.data(cell);
    }
    const auto borrowed = [&] {
        for (uint64_t p = out.sent.load(std::memory_order_relaxed); p < pushed; ++p) {
            const bool left = p < out.begun && flow.under_way[p % credits_per_channel].done;
            if (!left && out.at(p).cell == CellPool::none) return true;
        }
        return false;
    };
    if (wait_for(flow.peer, borrowed, "it did not take a message")) leave();
}

}  // namespace tutti::fabric
