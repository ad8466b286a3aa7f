// Ranks in one thread: mapped channels between all of them, and operations driven in
// turn.
#pragma once

#include <map>
#include <memory>
#include <new>
#include <tuple>
#include <vector>

#include "engine/bind.h"
#include "transport/mapped/channel_pool.h"

namespace tutti::test {

/// Sender that reports itself as not mapped, so that bind pushes from memory instead of building.
class Fabric {
public:
    explicit Fabric(bool mapped) {
        capabilities_.mapped = mapped;
        capabilities_.max_message_bytes = mapped_cell_bytes;
        capabilities_.credits = mapped_cells;
    }

    struct Link {
        std::unique_ptr<MappedSender> sender;
        std::unique_ptr<MappedReceiver> receiver;
        ReceiverSlot slot;
    };
    Link& link(Rank from, Rank to, uint16_t lane) {
        auto& link = links_[{from, to, lane}];
        if (!link) {
            link = std::make_unique<Link>();
            auto space = pool_->open();
            if (!space) throw std::bad_alloc();
            const MappedPeer peer{std::make_shared<Doorbell>(UniqueFd()),
                                  std::make_shared<PeerLife>()};
            link->receiver = std::make_unique<MappedReceiver>((*space)->block.data,
                                                              pool_->arena()->segments(), peer);
            link->sender = std::make_unique<MappedSender>(pool_, std::move(*space), peer);
            link->slot.receiver = link->receiver.get();
            link->slot.peer = from;
        }
        return *link;
    }
    const Capabilities& capabilities() const { return capabilities_; }

private:
    std::shared_ptr<ChannelPool> pool_ = std::make_shared<ChannelPool>(std::make_shared<Arena>());
    std::map<std::tuple<Rank, Rank, uint16_t>, std::unique_ptr<Link>> links_;
    Capabilities capabilities_;
};

/// One rank's view of the fabric.
class FabricRank final : public ChannelProvider {
public:
    FabricRank(Fabric& fabric, Rank rank) : fabric_(fabric), rank_(rank) {}
    Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline) override {
        return OpenSender{fabric_.link(rank_, peer, lane).sender.get(), &fabric_.capabilities()};
    }
    ReceiverSlot* receiver(Rank peer, uint16_t lane) override {
        return &fabric_.link(peer, rank_, lane).slot;
    }

private:
    Fabric& fabric_;
    Rank rank_;
};

/// Drives all operations in turn until all are done; the first error ends it.
inline Poll drive_all(const std::vector<std::unique_ptr<Operation>>& operations) {
    std::vector<bool> done(operations.size());
    for (int idle = 0; idle < 3; ++idle) {
        bool all = true;
        for (std::size_t r = 0; r < operations.size(); ++r) {
            if (done[r]) continue;
            const Poll poll = operations[r]->progress();
            if (poll.failure) return poll;
            done[r] = poll == Code::ok;
            if (poll.moved || done[r]) idle = -1;
            all &= done[r];
        }
        if (all) return Code::ok;
    }
    return Code::timeout;  // no operation moves any more
}

}  // namespace tutti::test
