// An engine's part of the flat exchange: contributions out to all peers, and into their slots.
#include <algorithm>
#include <bit>
#include <cstring>

#include "fabric/engine.h"

namespace tutti::fabric {
namespace {

// Of a thread that waits, while it keeps others out. Over sockets each is a system call.
// Eight make nothing faster, and keep peers from this core that share it.
constexpr int most_looks = 2;

/// A message of a call before that one.
const ReceiveQueue::Slot* find_stray(FlatStream& stream, const Tag& now) {
    if (!stream.unread.load(std::memory_order_relaxed)) return nullptr;
    bool unread = false;
    for (Flow* flow : stream.flows) {
        ReceiveQueue& in = flow->in;
        const uint64_t released = in.released.load(std::memory_order_relaxed);
        if (in.begun.load(std::memory_order_relaxed) == released) [[likely]]
            continue;
        unread = true;
        const ReceiveQueue::Slot& slot = in.at(released);
        const auto state = slot.state.load(std::memory_order_relaxed);
        const bool here =
            state != ReceiveQueue::State::empty && state != ReceiveQueue::State::spent;
        if (here && slot.tag.epoch() == now.epoch() && slot.tag.sequence < now.sequence)
            return &slot;
    }
    stream.unread.store(unread, std::memory_order_relaxed);
    return nullptr;
}

std::size_t member_of(const SlotBoard& board, Rank rank) {
    // As in a communicator of all ranks.
    const auto index = static_cast<std::size_t>(rank);
    if (index < board.size() && board.peers[index] && board.peers[index]->rank == rank)
        return index;
    const auto is_rank = [&](const Peer* p) { return p && p->rank == rank; };
    return static_cast<std::size_t>(std::find_if(board.peers.begin(), board.peers.end(), is_rank) -
                                    board.peers.begin());
}

}  // namespace

Result<> FabricEngine::join(SlotBoard& board, std::span<const Contact> contacts, std::size_t port) {
    const Guard guard(*this);
    if (!guard || closing_) return fail(Code::aborted, "the transport is closed");
    for (std::size_t member = 0; member < board.size(); ++member) {
        const auto& [rank, address] = contacts[member];
        if (std::cmp_equal(member, board.rank)) continue;
        TUTTI_ASSIGN(board.peers[member], reach(rank, address.ports[port], address.nonce));
    }
    for (std::size_t i = 0; i < board.streams.size(); ++i) {
        if (!board.streams[i]) continue;
        Header& header = board.streams[i]->outgoing.header;
        header.magic = Header::magic_of(Kind::contribution);
        header.sender = options_.rank;
        header.comm = board.comm;
        header.lane = static_cast<uint16_t>(i);
    }
    boards_[board.comm] = &board;
    for (const Peer* peer : board.peers)
        if (peer)
            for (auto& [key, flow] : flows_[peer->rank])
                if (FlatStream* const stream = find_stream(*flow)) add_flow(*stream, *flow);
    flush();
    return {};
}

void FabricEngine::leave(const SlotBoard& board) {
    const Guard guard(*this);
    for (const auto& stream : board.streams)
        if (stream)
            for (Flow* flow : stream->flows) flow->flat = nullptr;
    // Closed: nobody looks there any more.
    if (!guard) return;
    boards_.erase(board.comm);
    if (recent_board_ == &board) recent_board_ = nullptr;
}

SlotBoard* FabricEngine::find_board(uint32_t comm) {
    if (recent_board_ && recent_board_->comm == comm) return recent_board_;
    const auto found = boards_.find(comm);
    return found == boards_.end() ? nullptr : recent_board_ = found->second;
}

/// Of which flat stream it is a channel; null: of none.
FlatStream* FabricEngine::find_stream(const Flow& flow) {
    if (boards_.empty()) return nullptr;
    const SlotBoard* const board = find_board(flow.comm);
    if (!board || !std::count(board->peers.begin(), board->peers.end(), &flow.peer)) return nullptr;
    return board->stream(flow.lane / lanes_per_stream);
}

void FabricEngine::add_flow(FlatStream& stream, Flow& flow) {
    stream.flows.push_back(&flow);
    flow.flat = &stream;
    stream.unread = true;  // for all we know
}

const ReceiveQueue::Slot* FabricEngine::stray(FlatStream& stream, const Tag& now) {
    const Guard guard(*this);
    return guard ? find_stray(stream, now) : nullptr;
}

// ---- out -------------------------------------------------------------------------------------

// As for flows: published first, the flag tried second, and whoever gives it back looks again.
const ReceiveQueue::Slot* FabricEngine::exchange(SlotBoard& board, FlatStream& stream,
                                                 const Awaited& awaited) {
    if (!owner_.try_take()) {
        if (stream.unsent.load(std::memory_order_relaxed) == 0) return nullptr;
        contributions_added_.store(true, std::memory_order_seq_cst);
        if (!owner_.try_take()) return nullptr;
    }
    if (stream.unsent.load(std::memory_order_relaxed) != 0) {
        if (!ready_.empty() || ready_.added()) flush();
        send_contribution(board, stream);
    }
    const auto done = [&] {
        return stream.unsent.load(std::memory_order_relaxed) == 0 &&
               stream.has(awaited.member, awaited.number, awaited.turn);
    };
    for (int looks = 0; looks < most_looks && !done(); ++looks) poll();
    tidy();
    const ReceiveQueue::Slot* const stray = find_stray(stream, awaited.tag);
    leave();
    return stray;
}

/// To everyone who has not had it and can.
void FabricEngine::send_contribution(SlotBoard& board, FlatStream& stream) {
    Contribution& out = stream.outgoing;
    const uint64_t unsent = stream.unsent.load(std::memory_order_acquire);
    uint64_t left = unsent;
    for (uint64_t rest = unsent; rest != 0; rest &= rest - 1) {
        const auto member = static_cast<std::size_t>(std::countr_zero(rest));
        Peer& peer = *board.peers[member];
        if (busy(peer) || (peer.state != Peer::State::ready && peer.state != Peer::State::gone))
            continue;
        left &= ~(uint64_t{1} << member);
        if (peer.state == Peer::State::gone) continue;
        out.header.nonce = peer.nonce;
        const unsigned way = (out.header.position + (peer.rank < options_.rank ? 1 : 0)) % 2;
        const auto* const header = reinterpret_cast<const std::byte*>(&out.header);
        const Progress result =
            second_path_
                ? second_path_->send_crossing(peer.rank, header, out.payload.data(),
                                              out.header.bytes, way)
                : port_->send(peer.rank, header, out.payload.data(), out.header.bytes, nullptr);
        if (accepted(result, peer))
            ++peer.sent;
        else
            left |= uint64_t{1} << member;
    }
    contributions_held_ |= left != 0;
    stream.unsent.store(left, std::memory_order_release);
    if (left == 0) wake(stream.sleeper);
}

void FabricEngine::send_contributions() {
    contributions_held_ = false;
    for (const auto& [comm, board] : boards_)
        for (const auto& stream : board->streams)
            if (stream && stream->unsent.load(std::memory_order_acquire) != 0)
                send_contribution(*board, *stream);
}

void FabricEngine::cancel(FlatStream& stream) {
    const Guard guard(*this);
    stream.unsent.store(0, std::memory_order_relaxed);
}

// ---- in --------------------------------------------------------------------------------------

void FabricEngine::take_contribution(const Header& header, const Arrival& arrival) {
    SlotBoard* const board = find_board(header.comm);
    const std::size_t member = board ? member_of(*board, header.sender) : 0;
    const bool belongs = board && member < board->size();
    Peer& peer = belongs ? *board->peers[member] : peer_of(header.sender);
    if (peer.state == Peer::State::gone) return;
    ++peer.received;
    if (peer.bye_received) leave_if_done(peer);
    // The group's last words, to one that has left.
    if (!board) return;
    FlatStream* const place = board->stream(header.lane);
    if (!belongs || !place || header.bytes > flat_max_bytes || (header.bytes > 0 && !arrival.data))
        return break_rules(peer, fmt::format("it sent {} bytes to stream {} of a flat group that "
                                             "has no such place",
                                             header.bytes, header.lane));
    FlatStream& stream = *place;
    FlatStream::Slot& slot = stream.slot(member, header.position);
    const uint64_t turn = FlatStream::turn_of(header.tag, header.position);
    // What a failed epoch left on its way may come after the next one's first.
    if (FlatStream::is_past(slot.turn.load(std::memory_order_relaxed), turn)) return;
    slot.tag = header.tag;
    slot.bytes = header.bytes;
    if (header.bytes > 0) std::memcpy(slot.payload.data(), arrival.data, header.bytes);
    // Pairs with the operation's look: the contribution before its turn.
    slot.turn.store(turn, std::memory_order_release);
    wake(stream.sleeper);
}

}  // namespace tutti::fabric
