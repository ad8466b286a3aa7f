// The communicators of an endpoint.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/id_set.h"
#include "control/agreement/agreements.h"
#include "job/early_channels.h"
#include "job/early_messages.h"
#include "job/endpoint_client.h"
#include "transport/peer_limits.h"

namespace tutti {

/// The messages of a destroyed communicator that other ranks may not have got, and may ask for.
struct LastWords {
    std::vector<AgreementMessage> agreements = {};
    std::optional<ControlMessage> bye = {};
};

/// Gives every channel and every message to its communicator, keeps it until that communicator is
/// added, or drops it if the communicator was removed. Any thread may call any function.
///
/// The table's lock guards all its data, and is held while a client is called: after remove() it is
/// called no more. It is recursive, because clients call back. It is the endpoint's first lock: a
/// thread that holds it may take any other, never the other way round.
class ClientTable {
public:
    using Lock = std::unique_lock<std::recursive_mutex>;
    Lock hold() { return Lock(mutex_); }
    /// The lock is not held if a client is still being called at the deadline.
    Lock hold(Deadline deadline);

    /// False: this process has had a communicator of that id. For ids that are not counted.
    bool claim(uint32_t comm);
    /// Adds the client, and gives it the channels and messages that came early. True if there were
    /// channels.
    bool add(uint32_t comm, EndpointClient* client);
    /// True if it was the last one.
    bool remove(uint32_t comm, LastWords last_words = {});
    bool empty();

    enum class Taken : uint8_t { given, kept_or_dropped, too_many };
    /// A peer has opened a channel. too_many: that peer has too many early ones; the channel is
    /// gone.
    Taken opened(const ChannelId& id, std::unique_ptr<Receiver> receiver);
    bool still_wanted(const ChannelId& id);
    void connected(const ChannelId& id, Result<Opened> opened);
    /// keep: for a communicator that this rank may still make. Returns the answers to send back, in
    /// this order.
    std::vector<ControlMessage> handle_message(Rank from, const ControlMessage& message, bool keep);
    void peer_lost(Rank peer, const std::string& cause, Rank accuser = nobody);
    void unreachable(Rank peer);

    /// Drives the operations for which no thread waits, on all communicators. False: there are
    /// none.
    bool drive(bool& moved);
    /// Called before and after a sleep. False: check again instead of sleeping.
    bool arm(bool on);

private:
    EndpointClient* find(uint32_t comm) const;
    std::vector<ControlMessage> answer_for_removed(const ControlMessage& message) const;

    std::recursive_mutex mutex_;
    std::map<uint32_t, EndpointClient*> clients_;
    IdSet claimed_;
    IdSet removed_;  // late channels and messages for these are dropped
    ClosedAgreements closed_agreements_;
    std::deque<ControlMessage> byes_;  // of the last removed communicators
    EarlyChannels early_channels_{PeerLimits{}.early_channels};
    EarlyMessages early_messages_;
};

}  // namespace tutti
