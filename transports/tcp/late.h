// Messages of communicators that this rank has left.
#pragma once

#include "transport/posted/late_credits.h"
#include "transports/tcp/flow.h"

namespace tutti::tcp {

/// This flow stands for all channels of retired communicators: it receives their messages, and
/// queues to send their credits.
struct LateMessages {
    explicit LateMessages(std::atomic<std::size_t>& unread_bytes) : flow({}, unread_bytes) {}
    Flow flow;
    LateCredits credits;
};

}  // namespace tutti::tcp
