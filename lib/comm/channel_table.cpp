#include "comm/channel_table.h"

#include "base/log.h"

namespace tutti {

Result<OpenSender> ChannelTable::sender(Rank peer, uint16_t lane, Deadline deadline) {
    const Key key{peer, lane};
    {
        const std::lock_guard lock(mutex_);
        if (const auto found = senders_.find(key); found != senders_.end())
            return OpenSender{found->second.sender.get(), &found->second.transport->capabilities()};
    }
    // Without the lock: connecting waits for the peer, which may be opening a channel to us.
    auto opened = endpoint_.open(ChannelId{group_.in_job(peer), group_.id(), lane}, deadline);
    if (!opened) return tl::unexpected(std::move(opened).error());
    const std::lock_guard lock(mutex_);
    Outgoing& out = senders_[key];
    out.sender = std::move(opened->first);
    out.transport = opened->second;
    return OpenSender{out.sender.get(), &out.transport->capabilities()};
}

ReceiverSlot* ChannelTable::receiver(Rank peer, uint16_t lane) {
    const std::lock_guard lock(mutex_);
    auto& slot = slots_[{peer, lane}];
    if (!slot) {
        slot = std::make_unique<ReceiverSlot>();
        slot->peer = peer;
    }
    return slot.get();
}

void ChannelTable::opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
    const Rank peer = group_.of_job(id.peer);
    if (peer == nobody) {
        log::warn(
            "rank {} of the job opened a channel of a communicator that it is not in: ignored",
            id.peer);
        return;
    }
    ReceiverSlot* slot = this->receiver(peer, id.lane);
    const std::lock_guard lock(mutex_);
    if (slot->receiver.load(std::memory_order_relaxed)) {
        log::warn("rank {} opened lane {} a second time: ignored", id.peer, id.lane);
        return;
    }
    receivers_.push_back(std::move(receiver));
    slot->receiver.store(receivers_.back().get(), std::memory_order_release);
}

}  // namespace tutti
