// Control messages of communicators that this rank has not made yet.
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "control/control_message.h"

namespace tutti {

/// A rank may send messages for a communicator that this rank has not made yet, or never makes. So
/// the queue is bounded, for each sender and in all, and drops its oldest message.
class EarlyMessages {
public:
    static constexpr std::size_t most = 4096;
    static constexpr std::size_t most_of_one = 256;  // of one sender's

    void keep(Rank from, const ControlMessage& message) {
        const auto sent = [from](const auto& kept) { return kept.first == from; };
        const auto oldest = std::find_if(kept_.begin(), kept_.end(), sent);
        if (std::count_if(oldest, kept_.end(), sent) >= std::ptrdiff_t{most_of_one})
            kept_.erase(oldest);
        else if (kept_.size() == most)
            kept_.pop_front();
        kept_.emplace_back(from, message);
    }

    /// Removes the communicator's messages and returns them in order of arrival.
    std::vector<std::pair<Rank, ControlMessage>> take(uint32_t comm) {
        std::vector<std::pair<Rank, ControlMessage>> taken;
        const auto others =
            std::stable_partition(kept_.begin(), kept_.end(),
                                  [comm](const auto& kept) { return kept.second.comm == comm; });
        std::move(kept_.begin(), others, std::back_inserter(taken));
        kept_.erase(kept_.begin(), others);
        return taken;
    }

private:
    std::deque<std::pair<Rank, ControlMessage>> kept_;
};

}  // namespace tutti
