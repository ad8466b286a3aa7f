// Credits for messages of communicators that this rank has left.
#pragma once

#include <vector>

#include "transport/posted/flow_table.h"

namespace tutti {

/// This rank drops a late message and returns its credit, because the sender may need to send more
/// before its operation ends. Credits owed from before may be lost with the channel.
class LateCredits {
public:
    static constexpr std::string_view too_many =
        "it sent more to communicators that are gone than its credits allow";

    /// Adds one credit. False: too_many.
    bool add(const ChannelId& id) {
        if (owed_.size() >= max_channels_taken * credits_per_channel) return false;
        owed_.push_back(id);
        return true;
    }
    bool empty() const { return owed_.empty(); }
    /// give(id) returns true if it has sent the credit, or the peer will never need it.
    template <typename Give>
    void send(Give give) {
        std::erase_if(owed_, give);
    }

private:
    std::vector<ChannelId> owed_;
};

}  // namespace tutti
