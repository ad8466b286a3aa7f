// A channel through a pool's memory, both halves in one process.
#pragma once

#include <cstring>

#include "transport/joined.h"
#include "transport/mapped/channel_pool.h"

namespace tutti::test {

struct PooledLane {
    explicit PooledLane(const std::shared_ptr<ChannelPool>& pool) {
        auto space = pool->open();
        REQUIRE(space);
        const MappedPeer peer{std::make_shared<Doorbell>(UniqueFd()), std::make_shared<PeerLife>()};
        receiver =
            std::make_unique<MappedReceiver>((*space)->block.data, pool->arena()->segments(), peer);
        sender = std::make_unique<MappedSender>(pool, std::move(*space), peer);
    }
    bool send(uint64_t number, std::size_t bytes, uint64_t seed) {
        std::byte* place = sender->reserve(bytes);
        if (place == nullptr) return false;
        const Buffer data = pattern(bytes, seed);
        if (bytes > 0) std::memcpy(place, data.data(), bytes);
        sender->commit(make_tag(number), bytes);
        return true;
    }
    /// Whether the next message is there and has the bytes that it must have.
    bool read(uint64_t number, std::size_t bytes, uint64_t seed) {
        const auto message = receiver->peek(make_tag(number), bytes);
        if (message.data == nullptr || message.tag != make_tag(number)) return false;
        const Buffer data = pattern(bytes, seed);
        const bool right = bytes == 0 || std::memcmp(message.data, data.data(), bytes) == 0;
        receiver->release();
        return right;
    }
    std::unique_ptr<MappedSender> sender;
    std::unique_ptr<MappedReceiver> receiver;
};

inline std::shared_ptr<ChannelPool> make_pool() {
    return std::make_shared<ChannelPool>(std::make_shared<Arena>());
}

}  // namespace tutti::test
