// An engine's incoming direction. Everything a peer sends is checked before it is used.
#include <cstring>
#include <utility>

#include "base/log.h"
#include "fabric/engine.h"

namespace tutti::fabric {
namespace {

// Copying this much costs less than keeping the library's buffer and giving it back.
constexpr std::size_t copied_bytes = 1024;

constexpr std::byte nothing{};  // where messages without a payload lie

}  // namespace

// ---- events
// --------------------------------------------------------------------------------------

bool FabricEngine::arrived(const Arrival& arrival) {
    if (closed_.load(std::memory_order_relaxed)) return false;
    Header header;
    std::memcpy(&header, arrival.header, sizeof header);
    if (!belongs_here(header, arrival)) return false;
    if (header.kind() == Kind::contribution) {
        take_contribution(header, arrival);
        return false;
    }
    Flow* recent = find(header.sender, header.comm, header.lane);
    Peer& peer = recent ? recent->peer : peer_of(header.sender);
    if (peer.state == Peer::State::gone) return false;
    const Kind kind = header.kind();
    if (kind == Kind::data) return take_data(peer, header, arrival);
    if (kind == Kind::hello) {
        take_hello(peer, header, arrival);
        return false;
    }
    if (!peer.connected) {
        break_rules(peer, "it did not say hello first");
        return false;
    }
    switch (kind) {
        case Kind::bye:
            take_bye(peer, header);
            break;
        case Kind::farewell:
            peer.farewell_received = true;
            break;
        case Kind::open:
            // Whoever opens it does not know yet that this rank has left: it can send, to nobody.
            if (options_.retired->contains(header.comm)) break;
            if (Flow* flow = find_or_add(peer, header.comm, header.lane))
                announce(*flow);
            else
                break_rules(peer, fmt::format("there are {} channels already", max_channels_taken));
            break;
        case Kind::credit:
            if (recent ? !take_credits(*recent, header.credits)
                       : !options_.retired->contains(header.comm))
                break_rules(peer, fmt::format("it gave {} credits that it did not owe on lane {}",
                                              header.credits, header.lane));
            break;
        default:
            break;
    }
    if (kind != Kind::welcome || peer.state != Peer::State::hello) return false;
    peer.state = Peer::State::ready;
    for (auto& [key, flow] : flows_[peer.rank]) ready_.append(*flow);
    return false;
}

/// False: from someone who has not read our address, or nonsense. That is nobody's fault whom we
/// could name, so it is only dropped.
bool FabricEngine::belongs_here(const Header& header, const Arrival& arrival) {
    const char* why = nullptr;
    const bool in_job = header.sender >= 0 && header.sender < options_.size;
    if ((header.magic & header_magic_mask) != header_magic || header.kind() < Kind::hello ||
        header.kind() > Kind::contribution)
        why = "not one of tutti's";
    else if (header.nonce != options_.nonce)
        why = "meant for someone else";
    else if (!in_job || header.sender == options_.rank)
        why = "from a rank that does not exist";
    else if (header.bytes != arrival.bytes)
        why = "of another size than it says";
    if (why && !std::exchange(strangers_, true))
        log::warn("rank {}: dropped a message that is {}; more will be dropped silently",
                  options_.rank, why);
    return why == nullptr;
}

void FabricEngine::take_hello(Peer& peer, const Header& header, const Arrival& arrival) {
    if (!arrival.data || header.bytes < sizeof(uint64_t))
        return break_rules(peer, "it said hello without an address");
    ByteReader in(ByteView(arrival.data, arrival.bytes));
    const auto nonce = in.get<uint64_t>();
    const std::string port = in.get_text(header.bytes);
    if (!in.at_end() || (peer.nonce_known && peer.nonce != nonce))
        return break_rules(peer, "its hello is malformed");
    if (auto connected = connect(peer, as_bytes(port), nonce); !connected)
        return losing_.push_back({&peer, connected.error().message, Culprit::peer}), void();
    // It can answer, or it would not have said hello.
    if (peer.state == Peer::State::unknown || peer.state == Peer::State::hello) {
        peer.state = Peer::State::ready;
        for (auto& [key, flow] : flows_[peer.rank]) ready_.append(*flow);
    }
    owe(peer, Peer::welcome_due);
}

void FabricEngine::take_bye(Peer& peer, const Header& header) {
    peer.bye_received = true;
    peer.last = header.position;
    leave_if_done(peer);
}

void FabricEngine::lost(Rank rank, const std::string& cause, Culprit culprit) {
    if (const auto found = peers_.find(rank); found != peers_.end())
        losing_.push_back({found->second.get(), cause, culprit});
}

void FabricEngine::fetched(void* context, Code code) {
    Slot& slot = *static_cast<Slot*>(context);
    slot.begun = false;
    // Otherwise it stays as it is: the peer is lost, and cancel() need not wait.
    if (code == Code::ok) finish(slot);
}

// ---- messages
// ------------------------------------------------------------------------------------

void FabricEngine::announce(Flow& flow) {
    flow.in.live |= !flow.in.told && !closing_;
    if (std::exchange(flow.in.told, true) || closing_) return;
    news().opened.push_back(&flow);
}

bool FabricEngine::take_credits(Flow& flow, uint32_t credits) {
    if (flow.granted + credits > flow.out.begun + credits_per_channel) return false;
    flow.granted += credits;
    allow(flow);
    wake(flow.out.sleeper);
    return true;
}

/// True: the library's arrival is kept.
bool FabricEngine::take_data(Peer& peer, const Header& header, const Arrival& arrival) {
    const auto bad = [&](const std::string& cause) {
        break_rules(peer, cause);
        return false;
    };
    if (!peer.connected) return bad("it did not say hello first");
    if (header.bytes > options_.max_message_bytes)
        return bad(fmt::format("it announced a message of {} bytes; at most {} are allowed",
                               header.bytes, options_.max_message_bytes));
    Flow* flow = find(peer.rank, header.comm, header.lane);
    if ((!flow || !flow->in.told) && options_.retired->contains(header.comm))
        return take_late(peer, header);
    if (!flow) flow = find_or_add(peer, header.comm, header.lane);
    if (!flow) return bad(fmt::format("there are {} channels already", max_channels_taken));
    // Its open may have been overtaken.
    if (!flow->in.told) announce(*flow);
    if (header.credits > 0 && !take_credits(*flow, header.credits))
        return bad(fmt::format("it gave {} credits that it did not owe on lane {}", header.credits,
                               header.lane));
    ReceiveQueue& in = flow->in;
    const uint64_t returned = in.returned.load(std::memory_order_relaxed);
    const uint32_t ahead = header.position - static_cast<uint32_t>(returned);
    const uint64_t position = returned + ahead;
    if (ahead >= credits_per_channel || position < in.released.load(std::memory_order_seq_cst) ||
        in.at(position).state.load(std::memory_order_relaxed) != SlotState::empty)
        return bad(fmt::format("it sent more on lane {} than its credits allow", header.lane));
    ++peer.received;
    in.begun.fetch_add(1, std::memory_order_seq_cst);
    if (FlatStream* const stream = flow->flat.load(std::memory_order_relaxed))
        stream->unread.store(true, std::memory_order_relaxed);
    Slot& slot = in.at(position);
    slot.tag = header.tag;
    slot.bytes = header.bytes;
    slot.cell = CellPool::none;
    slot.offered = slot.on_device = false;
    const bool kept = place(*flow, position, arrival);
    if (peer.bye_received) leave_if_done(peer);
    return kept;
}

/// Drops a message of a communicator that is gone, and owes the credit.
bool FabricEngine::take_late(Peer& peer, const Header& header) {
    ++peer.received;
    if (late_credits_.size() >= max_channels_taken * credits_per_channel) {
        break_rules(peer, "it sent more to communicators that are gone than its credits allow");
        return false;
    }
    Header out = this->header(Kind::credit, peer);
    out.comm = header.comm;
    out.lane = header.lane;
    out.credits = 1;
    late_credits_.emplace_back(&peer, out);
    if (peer.bye_received) leave_if_done(peer);
    return false;
}

/// An offer that was taken, if the host can write there; else it is void.
std::byte* FabricEngine::unless_on_device(ReceiveQueue& in, std::byte* offered) {
    if (!offered || !in.offer.on_device()) return offered;
    in.offer.clear();
    return nullptr;
}

/// Decides where a message lies: where it is wanted, where the library has it, or in a cell.
bool FabricEngine::place(Flow& flow, uint64_t position, const Arrival& arrival) {
    ReceiveQueue& in = flow.in;
    Slot& slot = in.at(position);
    if (!in.live || arrival.bytes == 0) {
        slot.data = &nothing;
        finish(slot);
        return false;
    }
    if (!arrival.data) {
        // At once, though nobody may stand there yet: who exchanges in place reads only when its
        // own message has left, and so does the other.
        slot.hold = arrival.hold;
        std::byte* offered = in.offer.take(slot.tag, slot.bytes, position);
        // The host puts pieces where they belong.
        if (offered && arrival.at_once) offered = unless_on_device(in, offered);
        if (!offered && !arrival.at_once && in.patient.load(std::memory_order_relaxed)) {
            // Pairs with the lane's offer: it is seen here, or this is there.
            slot.state.store(SlotState::announced, std::memory_order_seq_cst);
            offered = in.offer.take(slot.tag, slot.bytes, position);
            if (!offered) {
                wake(in.sleeper);
                return true;
            }
        }
        if (!find_place(slot, offered)) return true;
        if (!arrival.at_once || !fetch(slot)) to_fetch_.push_back(&slot);
        return true;
    }
    if (!arrival.hold || arrival.bytes <= copied_bytes) return copy(flow, position, arrival);
    slot.hold = arrival.hold;
    slot.data = arrival.data;
    finish(slot);
    return true;
}

bool FabricEngine::copy(Flow& flow, uint64_t position, const Arrival& arrival) {
    ReceiveQueue& in = flow.in;
    Slot& slot = in.at(position);
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

/// False: there is no memory, or the peer has too much of it.
bool FabricEngine::take_cell(Slot& slot) {
    Peer& peer = slot.flow->peer;
    slot.cell = slot.flow->in.cells.take(slot.bytes);
    const std::size_t most = options_.limits.unread_bytes;
    if (slot.cell == CellPool::none)
        losing_.push_back({&peer, "no memory for a message", Culprit::own});
    else if (peer.unread_bytes.load(std::memory_order_relaxed) > most)
        losing_.push_back(
            {&peer, fmt::format("it sent more than {} bytes that this rank has not read", most),
             Culprit::peer});
    else
        return true;
    return false;
}

/// offered: the lane's memory; nullptr: a cell will do. False: as take_cell().
bool FabricEngine::find_place(Slot& slot, std::byte* offered) {
    slot.offered = offered != nullptr;
    slot.on_device = offered && slot.flow->in.offer.on_device();
    slot.to = offered;
    if (!offered) {
        if (!take_cell(slot)) return false;
        slot.to = slot.flow->in.cells.data(slot.cell);
    }
    slot.state.store(SlotState::fetching, std::memory_order_relaxed);
    return true;
}

/// False: the library has no room.
bool FabricEngine::fetch(Slot& slot) {
    if (slot.flow->peer.state == Peer::State::gone) return true;
    slot.begun = true;
    const Progress result =
        slot.on_device ? port_->devices()->fetch_to_device(slot.hold, slot.to, slot.bytes, &slot)
                       : port_->fetch(slot.hold, slot.to, slot.bytes, &slot);
    if (result == Progress::pending) return true;
    slot.begun = false;
    if (result == Progress::done) {
        finish(slot);
    } else if (result == Progress::failed) {
        losing_.push_back({&slot.flow->peer, "receiving from it failed", Culprit::peer});
    }
    return result != Progress::busy;
}

/// The message is whole, and the lane may have it.
void FabricEngine::finish(Slot& slot) {
    Flow& flow = *slot.flow;
    ReceiveQueue& in = flow.in;
    if (slot.state.load(std::memory_order_relaxed) == SlotState::fetching) slot.data = slot.to;
    if (slot.offered) in.offer.clear();
    // Pairs with peek(): the message before its state.
    slot.state.store(SlotState::whole, std::memory_order_seq_cst);
    wake(in.sleeper);
    if (!in.live) drop(in);
    if (in.credits_due()) ready_.append(flow);
    if (flow.peer.bye_received) leave_if_done(flow.peer);
}

/// For the lane, whose next message waits: to where it is offered, or else to a cell.
void FabricEngine::place_next(Flow& flow) {
    const Guard guard(*this);
    if (!guard) return;
    ReceiveQueue& in = flow.in;
    const uint64_t position = in.released.load(std::memory_order_relaxed);
    Slot& slot = in.at(position);
    if (slot.state.load(std::memory_order_relaxed) != SlotState::announced) return;
    if (find_place(slot, in.offer.take(slot.tag, slot.bytes, position))) to_fetch_.push_back(&slot);
}

/// Releases all that has arrived, for a channel without a receiver.
void FabricEngine::drop(ReceiveQueue& in) {
    uint64_t position = in.released.load(std::memory_order_relaxed);
    while (in.at(position).state.load(std::memory_order_relaxed) == SlotState::whole)
        in.at(position++).state.store(SlotState::spent, std::memory_order_relaxed);
    in.released.store(position, std::memory_order_seq_cst);
}

/// Takes back the places of what the lane has released.
void FabricEngine::reclaim(ReceiveQueue& in) {
    const uint64_t released = in.released.load(std::memory_order_seq_cst);
    for (; in.reclaimed < released; ++in.reclaimed) {
        Slot& slot = in.at(in.reclaimed);
        if (slot.cell != CellPool::none) in.cells.give(slot.cell);
        if (slot.hold) port_->release(std::exchange(slot.hold, nullptr));
        slot.state.store(SlotState::empty, std::memory_order_relaxed);
    }
}

// ---- for the lane
// --------------------------------------------------------------------------------

/// Nothing lies in the caller's memory afterwards, neither whole messages nor one that is arriving.
void FabricEngine::cancel_receives(Flow& flow) {
    if (!enter()) return;
    ReceiveQueue& in = flow.in;
    for (Slot& slot : in.slots) {
        const auto fetching = [&] {
            return slot.offered &&
                   slot.state.load(std::memory_order_relaxed) == SlotState::fetching;
        };
        if (fetching() && flow.peer.state != Peer::State::gone) fetch_to_cell(slot);
        if (!wait_for(flow.peer, fetching, "it did not send a message")) return;
        if (slot.offered && slot.state.load(std::memory_order_relaxed) == SlotState::whole &&
            !save_offered(slot))
            lose(flow.peer, "no memory to keep a message", true, Culprit::own);
    }
    in.offer.clear();
    leave();
}

/// The rest of a message that is arriving in the caller's memory, if the library can be told.
void FabricEngine::fetch_to_cell(Slot& slot) {
    CellPool& cells = slot.flow->in.cells;
    const int cell = slot.on_device ? CellPool::none : cells.take(slot.bytes);
    if (cell == CellPool::none) return;
    std::memcpy(cells.data(cell), slot.to, slot.bytes);
    if (slot.begun && !port_->move(&slot, cells.data(cell))) return cells.give(cell);
    slot.cell = cell;
    slot.to = cells.data(cell);
    slot.offered = false;
}

bool FabricEngine::save_offered(Slot& slot) {
    CellPool& cells = slot.flow->in.cells;
    slot.offered = false;
    // The host cannot read it: whoever still wants it has it there.
    if (slot.on_device) return true;
    slot.cell = cells.take(slot.bytes);
    if (slot.cell == CellPool::none) {
        slot.tag = {};  // stale for everyone
        return false;
    }
    if (slot.bytes > 0) std::memcpy(cells.data(slot.cell), slot.data, slot.bytes);
    slot.data = cells.data(slot.cell);
    return true;
}

}  // namespace tutti::fabric
