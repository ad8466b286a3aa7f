// An engine's part of the flat exchange: it sends contributions to all peers, and stores theirs in
// slots.
#pragma once

#include <unordered_map>

#include "fabric/peers.h"
#include "fabric/slot_board.h"

namespace tutti::fabric {

/// The boards of the groups that run over the engine. A board is known from add() to remove(); its
/// streams know which flows are theirs. Only the engine's owner uses this, except publish().
class FlatBoards {
public:
    FlatBoards(Rank rank, EnginePort& port, PeerTable& peers, FlowTable<Flow>& flows,
               const SleeperWaker& waker)
        : rank_(rank), port_(port), peers_(peers), flows_(flows), waker_(waker) {}

    /// Call once all its peers are reachable.
    void add(SlotBoard& board);
    void remove(const SlotBoard& board);
    /// Adds a new flow to its stream, if it belongs to one.
    void adopt(Flow& flow);
    static void forget(Flow& flow) {
        if (SlotStream* const stream = flow.flat) std::erase(stream->flows, &flow);
    }

    /// Stores a peer's contribution in its slot.
    void handle_contribution(const Header& header, const Arrival& arrival);
    /// Sends the contribution to every member that has not been sent it and has room.
    void send(SlotBoard& board, SlotStream& stream);
    /// From any thread: a stream has an unsent contribution that the owner does not know of yet.
    /// Pairs with the owner's exchange in send_unsent(), which makes the `unsent` of every
    /// publishing thread visible. An exchange, because a plain store of a second thread would end
    /// the first thread's release sequence. It runs only if the engine's flag was taken, and costs
    /// no more than a sequentially consistent store.
    void publish() { added_.exchange(true, std::memory_order_seq_cst); }
    bool any_added() const { return added_.load(std::memory_order_seq_cst); }
    /// Sends published contributions, and those for which there was no room before.
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
    std::unordered_map<uint32_t, SlotBoard*> boards_;  // by communicator number
    SlotBoard* recent_ = nullptr;
    bool held_ = false;  // some contributions are unsent for want of room
};

}  // namespace tutti::fabric
