#include "fabric/boards.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::fabric {
namespace {

std::size_t member_of(const SlotBoard& board, Rank rank) {
    // In a communicator of all ranks a rank is its own member index.
    const auto index = static_cast<std::size_t>(rank);
    if (index < board.size() && board.peers[index] && board.peers[index]->rank == rank)
        return index;
    const auto is_rank = [&](const Peer* p) { return p && p->rank == rank; };
    return static_cast<std::size_t>(std::find_if(board.peers.begin(), board.peers.end(), is_rank) -
                                    board.peers.begin());
}

}  // namespace

void FlatBoards::add(SlotBoard& board) {
    for (std::size_t i = 0; i < board.streams.size(); ++i) {
        if (!board.streams[i]) continue;
        Header& header = board.streams[i]->outgoing.header;
        header.magic = Header::magic_of(Kind::contribution);
        header.sender = rank_;
        header.comm = board.comm;
        header.lane = static_cast<uint16_t>(i);
    }
    boards_[board.comm] = &board;
    for (const Peer* peer : board.peers)
        if (peer) flows_.each(peer->rank, [this](Flow& flow) { adopt(flow); });
}

void FlatBoards::remove(const SlotBoard& board) {
    boards_.erase(board.comm);
    if (recent_ == &board) recent_ = nullptr;
}

SlotBoard* FlatBoards::find_board(uint32_t comm) {
    if (recent_ && recent_->comm == comm) return recent_;
    const auto found = boards_.find(comm);
    return found == boards_.end() ? nullptr : recent_ = found->second;
}

void FlatBoards::adopt(Flow& flow) {
    if (boards_.empty() || flow.flat) return;
    const SlotBoard* const board = find_board(flow.id.comm);
    if (!board || !std::count(board->peers.begin(), board->peers.end(), &flow.peer)) return;
    SlotStream* const stream = board->stream(flow.id.lane / lanes_per_stream);
    if (!stream) return;
    stream->flows.push_back(&flow);
    flow.flat = stream;
    stream->unread = true;  // assumed until find_stray() checks
}

void FlatBoards::send(SlotBoard& board, SlotStream& stream) {
    Contribution& out = stream.outgoing;
    const uint64_t unsent = stream.unsent.load(std::memory_order_acquire);
    uint64_t left = unsent;
    for (uint64_t rest = unsent; rest != 0; rest &= rest - 1) {
        const auto member = static_cast<std::size_t>(std::countr_zero(rest));
        Peer& peer = *board.peers[member];
        if (port_.is_busy(peer) ||
            (peer.state != Peer::State::ready && peer.state != Peer::State::gone))
            continue;
        left &= ~(uint64_t{1} << member);
        if (peer.state == Peer::State::gone) continue;
        out.header.nonce = peer.nonce;
        const unsigned way = (out.header.position + (peer.rank < rank_ ? 1 : 0)) % 2;
        if (port_.send_crossing(peer, out.header, out.payload.data(), way))
            ++peer.sent;
        else
            left |= uint64_t{1} << member;
    }
    held_ |= left != 0;
    stream.unsent.store(left, std::memory_order_release);
    if (left == 0) waker_.wake(stream.sleeper);
}

void FlatBoards::send_all() {
    held_ = false;
    for (const auto& [comm, board] : boards_)
        for (const auto& stream : board->streams)
            if (stream && stream->unsent.load(std::memory_order_acquire) != 0)
                send(*board, *stream);
}

void FlatBoards::handle_contribution(const Header& header, const Arrival& arrival) {
    SlotBoard* const board = find_board(header.comm);
    const std::size_t member = board ? member_of(*board, header.sender) : 0;
    const bool belongs = board && member < board->size();
    Peer& peer = belongs ? *board->peers[member] : peers_.find_or_add(header.sender);
    if (peer.state == Peer::State::gone) return;
    ++peer.received;
    if (peer.bye_received) peers_.retire_if_done(peer);
    // The group sent this before it knew that this rank has left.
    if (!board) return;
    SlotStream* const place = board->stream(header.lane);
    if (!belongs || !place || header.bytes > flat_max_bytes || (header.bytes > 0 && !arrival.data))
        return port_.report_protocol_error(
            peer, fmt::format("it sent {} bytes to ring {} of a flat group that has no slot for "
                              "them",
                              header.bytes, header.lane));
    SlotStream& stream = *place;
    SlotStream::Slot& slot = stream.slot(member, header.position);
    const uint64_t turn = SlotStream::turn_of(header.tag, header.position);
    // A contribution of a failed epoch may arrive after the next epoch's first.
    if (SlotStream::is_past(slot.turn.load(std::memory_order_relaxed), turn)) return;
    slot.tag = header.tag;
    slot.bytes = header.bytes;
    if (header.bytes > 0) std::memcpy(slot.payload.data(), arrival.data, header.bytes);
    // Pairs with the operation's load of the turn: the contribution is visible before it.
    slot.turn.store(turn, std::memory_order_release);
    waker_.wake(stream.sleeper);
}

}  // namespace tutti::fabric
