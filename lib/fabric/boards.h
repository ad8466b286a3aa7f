// An engine's part of the flat exchange: contributions out to all peers, and into their slots.
#pragma once

#include <unordered_map>

#include "fabric/peers.h"
#include "fabric/slot_board.h"

namespace tutti::fabric {

/// The boards of the groups that run over the engine. A board is known from add() to remove();
/// its streams know which flows are theirs. All of the engine's owner, but for publish().
class FlatBoards {
public:
    FlatBoards(Rank rank, EnginePort& port, PeerTable& peers, FlowTable<Flow>& flows,
               const SleeperWaker& waker)
        : rank_(rank), port_(port), peers_(peers), flows_(flows), waker_(waker) {}

    /// Once its peers are reached.
    void add(SlotBoard& board);
    void remove(const SlotBoard& board);
    /// A new flow, which may be one of a stream's.
    void adopt(Flow& flow);
    static void forget(Flow& flow) {
        if (SlotStream* const stream = flow.flat) std::erase(stream->flows, &flow);
    }

    /// A peer's contribution.
    void handle_contribution(const Header& header, const Arrival& arrival);
    /// To every member that has not had it and can.
    void send(SlotBoard& board, SlotStream& stream);
    /// Any thread's: a stream has something unsent, which the owner does not know yet.
    void publish() { added_.store(true, std::memory_order_seq_cst); }
    bool any_added() const { return added_.load(std::memory_order_seq_cst); }
    /// Sends what was published, and what could not go before.
    void send_unsent() {
        if (added_.load(std::memory_order_relaxed) &&
            added_.exchange(false, std::memory_order_seq_cst))
            held_ = true;
        if (held_) send_all();
    }

private:
    SlotBoard* find_board(uint32_t comm);
    void send_all();

    const Rank rank_;
    EnginePort& port_;
    PeerTable& peers_;
    FlowTable<Flow>& flows_;
    const SleeperWaker& waker_;
    std::atomic<bool> added_{false};
    std::unordered_map<uint32_t, SlotBoard*> boards_;  // by communicator
    SlotBoard* recent_ = nullptr;
    bool held_ = false;  // some contributions could not go
};

}  // namespace tutti::fabric
