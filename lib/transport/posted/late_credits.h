// Credits for messages of communicators that this rank has left.
#pragma once

#include <vector>

#include "transport/posted/flow_table.h"

namespace tutti {

/// A late message is dropped, and its sender gets the credit: it may have to get rid of more before
/// its operation is over. Credits that it was owed before may be lost with the channel.
class LateCredits {
public:
    static constexpr std::string_view too_many =
        "it sent more to communicators that are gone than its credits allow";

    /// One credit more. False: too_many.
    bool add(const ChannelId& id) {
        if (owed_.size() >= max_channels_taken * credits_per_channel) return false;
        owed_.push_back(id);
        return true;
    }
    bool empty() const { return owed_.empty(); }
    /// give(id) is true if the credit is on its way, or will never be wanted.
    template <typename Give>
    void send(Give give) {
        std::erase_if(owed_, give);
    }

private:
    std::vector<ChannelId> owed_;
};

}  // namespace tutti
