// The channels of one communicator, opened when first used and kept.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "control/group.h"
#include "engine/channels.h"
#include "job/endpoint.h"

namespace tutti {

class ChannelTable final : public ChannelProvider {
public:
    ChannelTable(Endpoint& endpoint, const Group& group) : endpoint_(endpoint), group_(group) {}

    /// Any thread may call this. If several want the same sender, the first opens it and the others
    /// wait.
    Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline deadline) override;
    /// Never waits. nullptr: the sender is not open; the endpoint opens it, and the caller asks
    /// again.
    Sender* sender_soon(Rank peer, uint16_t lane);
    ReceiverSlot* receiver(Rank peer, uint16_t lane) override;

    /// Called by the endpoint, which opens the senders that sender_soon() has asked for
    /// (EndpointClient).
    bool still_wanted(const ChannelId& id);
    void connected(const ChannelId& id, Result<Opened> opened);
    /// A peer (by its rank in the job) opened its sending half. Any thread may call this.
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver);

private:
    using Key = std::pair<Rank, uint16_t>;
    struct SenderEntry {
        std::unique_ptr<Sender> sender;
        const Transport* transport = nullptr;
        bool opening = false;  // a thread is opening it without the mutex
        bool asked = false;    // the endpoint was asked, and has not begun
        int64_t again_ns = 0;  // after a failure: the time of the next attempt
    };
    static void store_outcome(SenderEntry& out, Result<Opened>& opened);
    Error in_group(Error error, Rank peer) const;
    ChannelId id_of(const Key& key) const {
        return {.peer = group_.in_job(key.first), .comm = group_.id(), .lane = key.second};
    }
    Endpoint& endpoint_;
    const Group& group_;
    std::mutex mutex_;
    std::condition_variable outcome_;     // an attempt to open has ended
    std::map<Key, SenderEntry> senders_;  // never replaced: pointers to the senders are in use
    std::map<Key, std::unique_ptr<ReceiverSlot>> slots_;
    std::vector<std::unique_ptr<Receiver>> receivers_;
};

}  // namespace tutti
