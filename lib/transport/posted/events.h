// Events of an engine of posted channels: what its transport hears.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "transport/transport.h"

namespace tutti {

/// An engine tells its transport, from whichever thread came in, without the owner flag.
class ChannelEvents {
public:
    virtual ~ChannelEvents() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    virtual void lost(Rank peer, const std::string& cause) = 0;
};

/// The rank at fault when two ranks are apart: own is the one that says so, as without memory.
enum class Culprit : uint8_t { peer, own };

/// Events that the owner has found, until they can be delivered.
template <typename Flow>
struct PendingEvents {
    std::vector<Flow*> opened;
    // The rank at fault, and the cause as the text after "rank N is gone: ".
    std::vector<std::pair<Rank, std::string>> lost;

    void add_loss(Rank own, Rank peer, const std::string& cause, Culprit culprit) {
        if (culprit == Culprit::own)
            lost.emplace_back(own, fmt::format("it cannot continue with rank {}: {}", peer, cause));
        else
            lost.emplace_back(peer, cause);
    }
};

/// Hands a transport's events to its client: the loss of a rank once, however many engines find it.
class SinkEvents final : public ChannelEvents {
public:
    explicit SinkEvents(ChannelSink* sink) : sink_(sink) {}
    void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) override {
        sink_->opened(id, std::move(receiver));
    }
    void lost(Rank peer, const std::string& cause) override {
        {
            const std::lock_guard lock(mutex_);
            if (!lost_.insert(peer).second) return;
        }
        sink_->peer_lost(peer, cause);
    }

private:
    ChannelSink* const sink_;
    std::mutex mutex_;  // guards the ranks
    std::set<Rank> lost_;
};

}  // namespace tutti
