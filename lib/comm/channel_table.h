// The channels of one communicator, opened when first used and kept.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/endpoint.h"
#include "comm/group.h"
#include "engine/channels.h"

namespace tutti {

class ChannelTable final : public ChannelProvider {
public:
    ChannelTable(Endpoint& endpoint, const Group& group) : endpoint_(endpoint), group_(group) {}

    /// From any thread. Of several that want the same one, the first opens it and the others wait.
    Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline deadline) override;
    ReceiverSlot* receiver(Rank peer, uint16_t lane) override;

    /// A peer (by its rank in the job) opened its sending half. From any thread.
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver);

private:
    using Key = std::pair<Rank, uint16_t>;
    struct Outgoing {
        std::unique_ptr<Sender> sender;
        const Transport* transport = nullptr;
        bool opening = false;  // by a thread, without the mutex
    };
    Endpoint& endpoint_;
    const Group& group_;
    std::mutex mutex_;
    std::condition_variable outcome_;  // of opening
    std::map<Key, Outgoing> senders_;  // none is ever replaced: others hold it
    std::map<Key, std::unique_ptr<ReceiverSlot>> slots_;
    std::vector<std::unique_ptr<Receiver>> receivers_;
};

}  // namespace tutti
