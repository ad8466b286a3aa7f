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

    /// From any thread. Of several that want the same one, the first opens it and the others wait.
    Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline deadline) override;
    /// Never waits: nullptr if it is not open. Then the endpoint opens it, and asking again tells.
    Sender* sender_soon(Rank peer, uint16_t lane);
    ReceiverSlot* receiver(Rank peer, uint16_t lane) override;

    /// The endpoint opens what it was asked for: EndpointClient has them.
    bool still_wanted(const ChannelId& id);
    void connected(const ChannelId& id, Result<Opened> opened);
    /// A peer (by its rank in the job) opened its sending half. From any thread.
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver);

private:
    using Key = std::pair<Rank, uint16_t>;
    struct SenderEntry {
        std::unique_ptr<Sender> sender;
        const Transport* transport = nullptr;
        bool opening = false;  // by a thread, without the mutex
        bool asked = false;    // the endpoint, which has not begun
        int64_t again_ns = 0;  // after it failed: not before
    };
    static void store_outcome(SenderEntry& out, Result<Opened>& opened);
    Error in_group(Error error, Rank peer) const;
    ChannelId id_of(const Key& key) const {
        return {.peer = group_.in_job(key.first), .comm = group_.id(), .lane = key.second};
    }
    Endpoint& endpoint_;
    const Group& group_;
    std::mutex mutex_;
    std::condition_variable outcome_;     // of opening
    std::map<Key, SenderEntry> senders_;  // none is ever replaced: others hold it
    std::map<Key, std::unique_ptr<ReceiverSlot>> slots_;
    std::vector<std::unique_ptr<Receiver>> receivers_;
};

}  // namespace tutti
