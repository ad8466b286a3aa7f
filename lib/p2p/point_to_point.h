// Sends and receives between two ranks: an engine of its own, on two lanes of its own.
//
//   requests  small messages whole, and announcements of large ones, in the order of the sends.
//             Messages that no receive wants yet wait in a queue of limited size, and in the
//             channel once that is full.
//   data      the receiver's "go on" for an announced message, then the sender's bytes, straight
//             into the posted buffer. No message here waits for a receive, so this lane always
//             moves.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <vector>

#include "p2p/unexpected.h"
#include "plan/channel_table.h"
#include "wait/owner.h"
#include "wait/shared_wait_deadline.h"

namespace tutti {

inline constexpr uint16_t point_to_point_lane = 0x4000;

struct PointToPointLimits {
    std::size_t message_bytes = 0;     // the largest message of a channel
    std::size_t eager_bytes = 0;       // larger messages are announced first
    std::size_t unexpected_bytes = 0;  // per rank, of whole messages that no receive wants yet
};

/// The engine reports each transfer's end to this host, with the engine's owner flag held. The
/// transfer may be gone after the call.
class TransferHost {
public:
    virtual ~TransferHost() = default;
    virtual void finished(Transfer& transfer, const Error& error) = 0;
};

/// The thread that holds the owner flag calls these functions, unless a comment says otherwise.
class PointToPoint {
public:
    PointToPoint(Rank rank, Rank size, ChannelTable& channels, const PointToPointLimits& limits,
                 TransferHost& host)
        : rank_(rank),
          size_(size),
          channels_(channels),
          limits_(limits),
          host_(host),
          unexpected_(limits.unexpected_bytes) {}

    /// Makes sure that the transfer's peers are known. Blocks until the channels are open or
    /// `ended` returns true; for the issuing thread only, without the owner flag.
    Result<> connect(const Transfer& transfer, OwnerFlag& owner, Deadline deadline,
                     const std::function<bool()>& ended);

    /// True if the channels for sends to that rank are open. For the issuing thread only.
    bool connected(Rank rank) {
        const PeerQueues* known = find(rank);
        return rank == rank_ || (known && known->connected);
    }
    /// True if that connected transfer may go from a GPU's memory or into it. For the issuing
    /// thread only.
    bool takes_device(const Transfer& transfer) const;

    void post(Transfer& transfer);
    /// Drives every transfer as far as it goes now. Never waits, even for a channel to open.
    void progress(bool& moved);
    void arm(bool on);
    /// The reason why no transfer can continue although no peer is lost (the system refuses
    /// memory), else ok.
    Code health() const;

    /// Ends every transfer for which `reason` returns an error.
    template <typename Reason>
    void purge(Reason&& reason);
    /// Why a transfer waits, for the message at its deadline.
    std::string describe(const Transfer& transfer) const;
    /// Calls `visit` for every pending transfer.
    template <typename Visit>
    void for_each(Visit&& visit);

private:
    struct PeerQueues {
        Rank rank = nobody;
        Sender* requests_out = nullptr;
        Sender* data_out = nullptr;
        bool connected = false;  // the issuing thread's: both senders are open
        ReceiverSlot* requests_in = nullptr;
        ReceiverSlot* data_in = nullptr;
        std::deque<Transfer*> to_send;    // in order, not on the requests lane yet
        std::deque<Transfer*> announced;  // waiting for the peer's go_on or refuse
        std::deque<Transfer*> sending;    // their bytes go out, one after the other
        std::deque<Transfer*> draining;   // all bytes pushed, not all sent
        std::deque<Tag> answers;          // go_on and refuse that wait for a credit
        std::deque<Transfer*> matched;    // receives of announced messages, before their go_on
        std::deque<Transfer*> arriving;   // in the order of their go_on
        std::deque<Transfer*> refusing;   // receives that end once their refusal is sent
        uint64_t last_id = 0;
    };

    PeerQueues* find(Rank rank);
    Result<> open_out(PeerQueues& peer, Deadline deadline);
    void post_send(Transfer& send);
    bool send_to_self();
    void post_receive(Transfer& receive);
    bool push_requests(PeerQueues& peer);
    bool attach_senders(PeerQueues& peer);
    bool push_answers(PeerQueues& peer);
    void finish_refused(PeerQueues& peer, const Tag& refusal);
    bool push_data(PeerQueues& peer);
    bool finish_sent(PeerQueues& peer);
    bool handle_requests(PeerQueues& peer);
    bool handle_data(PeerQueues& peer);
    bool handle_answer(PeerQueues& peer, const Tag& tag);
    bool match(Rank from, const Tag& tag, const std::byte* data);
    void deliver(Transfer& receive, Rank from, const Tag& tag, const std::byte* data);
    void answer(Rank to, const Tag& announcement, MessageKind kind);
    bool accept_announced(PeerQueues& peer);
    void offer(Receiver& in, Transfer& receive);
    std::size_t next_piece(const Transfer& transfer, std::size_t total) const;

    const Rank rank_, size_;
    ChannelTable& channels_;
    const PointToPointLimits limits_;
    TransferHost& host_;
    std::map<Rank, PeerQueues> peers_;
    std::deque<Transfer*> to_self_;  // in order
    std::list<Transfer*> receives_;  // posted and not matched, in order
    UnexpectedMessages unexpected_;
};

template <typename Visit>
void PointToPoint::for_each(Visit&& visit) {
    std::vector<Transfer*> all(receives_.begin(), receives_.end());
    all.insert(all.end(), to_self_.begin(), to_self_.end());
    for (auto& [rank, peer] : peers_)
        for (const auto* list : {&peer.to_send, &peer.announced, &peer.sending, &peer.draining,
                                 &peer.matched, &peer.arriving, &peer.refusing})
            all.insert(all.end(), list->begin(), list->end());
    for (Transfer* transfer : all) visit(*transfer);
}

template <typename Reason>
void PointToPoint::purge(Reason&& reason) {
    // Report the ends last: the memory is the caller's again only when the channels have let go of
    // it.
    std::vector<std::pair<Transfer*, Error>> ended;
    const auto ends = [&](Transfer* transfer) {
        auto why = reason(*transfer);
        if (why) ended.emplace_back(transfer, *std::move(why));
        return why.has_value();
    };
    std::erase_if(receives_, ends);
    std::erase_if(to_self_, ends);
    const SharedWaitDeadline together;
    for (auto& [rank, peer] : peers_) {
        bool any = false;
        for (auto* list : {&peer.to_send, &peer.announced, &peer.sending, &peer.draining,
                           &peer.matched, &peer.arriving, &peer.refusing})
            any |= std::erase_if(*list, ends) > 0;
        if (!any) continue;
        if (peer.data_out) peer.data_out->cancel();
        if (Receiver* r = peer.data_in->receiver.load(std::memory_order_acquire)) r->cancel();
    }
    for (const auto& [transfer, why] : ended) host_.finished(*transfer, why);
}

}  // namespace tutti
