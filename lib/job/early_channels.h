// Channels that peers have opened for communicators that this rank has not made yet.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transport/channel.h"

namespace tutti {

class EarlyChannels {
public:
    using Kept = std::vector<std::pair<ChannelId, std::unique_ptr<Receiver>>>;

    explicit EarlyChannels(std::size_t most_of_one) : most_of_one_(most_of_one) {}

    /// False: that peer has too many; the channel is gone.
    bool keep(const ChannelId& id, std::unique_ptr<Receiver> receiver) {
        if (count_[id.peer] >= most_of_one_) return false;
        ++count_[id.peer];
        kept_.emplace_back(id, std::move(receiver));
        return true;
    }
    Kept take_all() {
        count_.clear();
        return std::exchange(kept_, {});
    }

private:
    const std::size_t most_of_one_;
    std::map<Rank, std::size_t> count_;
    Kept kept_;
};

}  // namespace tutti
