// The ranks that a port knows, and the control messages to them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "fabric/armed_doorbell.h"
#include "fabric/descriptor_marks.h"
#include "transport/posted/flow_table.h"
#include "transport/posted/ready_list.h"

namespace tutti::fabric {

/// Peers whose processes other ranks have found dead. Any thread may mark one, even while another
/// thread is in the engine and waits for that peer. The owner drops the peer some time later,
/// because messages that the peer sent before its death still arrive until then.
class FailedPeers {
public:
    void mark(Rank peer) {
        const std::lock_guard lock(mutex_);
        marked_.emplace_back(peer, now_ns() + last_words_ns);
        any_.store(true, std::memory_order_relaxed);
    }
    bool any() const { return any_.load(std::memory_order_relaxed); }
    std::vector<Rank> take_due() {
        std::vector<Rank> due;
        const std::lock_guard lock(mutex_);
        std::erase_if(marked_, [&, now = now_ns()](const auto& one) {
            if (now < one.second) return false;
            due.push_back(one.first);
            return true;
        });
        any_.store(!marked_.empty(), std::memory_order_relaxed);
        return due;
    }

private:
    static constexpr int64_t last_words_ns = 30'000'000;

    std::mutex mutex_;
    std::vector<std::pair<Rank, int64_t>> marked_;  // with the time when each is due
    std::atomic<bool> any_{false};
};

/// A peer goes from hello to ready to gone, and stays in the table. A peer that has said bye
/// becomes gone once all its messages are here and it has been sent a farewell. The library has no
/// operations of a gone peer.
class PeerTable {
public:
    struct TableParts {
        EnginePort& port;
        FlowTable<Flow>& flows;
        ReadyList<Flow>& ready;
        ArmedDoorbell& doorbell;
        DescriptorMarks& marks;
        const SleeperWaker& waker;
    };
    explicit PeerTable(const TableParts& shared) : shared_(shared) {}
    /// The payload of this rank's hellos: its address.
    void set_hello(Bytes hello) { hello_ = std::move(hello); }

    /// nullptr: that rank is unknown.
    Peer* find(Rank rank) const {
        const auto found = peers_.find(rank);
        return found == peers_.end() ? nullptr : found->second.get();
    }
    Peer& find_or_add(Rank rank);
    /// A peer that can answer, or soon will.
    Result<Peer*> reach(Rank rank, ByteView port, uint64_t nonce);

    void mark_due(Peer& peer, uint8_t what) {
        if (peer.due == 0) with_due_.push_back(&peer);
        peer.due |= what;
    }
    bool any_due() const { return !with_due_.empty(); }
    /// Sends the control messages that are due, as far as the library has room.
    void send_all_due();

    void handle_hello(Peer& peer, const Header& header, const Arrival& arrival);
    void handle_welcome(Peer& peer) {
        if (peer.state == Peer::State::hello) make_ready(peer);
    }
    void handle_bye(Peer& peer, const Header& header);
    /// If a peer said bye and all its messages are here, it is sent a farewell and dropped after
    /// that.
    void retire_if_done(Peer& peer);
    bool any_leaving() const { return !leaving_.empty(); }
    void drop_leaving();
    void drop(Peer& peer);

    /// For closing: says bye to peers that have received all messages. True: every peer has
    /// received everything, and knows it.
    bool send_byes();
    void drop_all();
    template <typename F>
    void each(F f) {
        for (auto& [rank, peer] : peers_) f(*peer);
    }

private:
    Result<> connect(Peer& peer, ByteView port, uint64_t nonce);
    void make_ready(Peer& peer);
    bool send_due(Peer& peer);
    bool send_control(Peer& peer, Kind kind);

    const TableParts shared_;
    Bytes hello_;
    std::unordered_map<Rank, std::unique_ptr<Peer>> peers_;
    std::vector<Peer*> with_due_;  // peers with control messages due
    std::vector<Peer*> leaving_;   // have said bye, and are to be sent a farewell
};

}  // namespace tutti::fabric
