// Events that an engine of posted channels reports to its transport.
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

/// The engine's calls to its transport, from any thread that entered, without the owner flag.
class ChannelEvents {
public:
    virtual ~ChannelEvents() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    virtual void lost(Rank peer, const std::string& cause) = 0;
};

/// The rank to blame when two ranks lose each other. own: the reporting rank itself, for example
/// because it has no memory.
enum class Culprit : uint8_t { peer, own };

/// Events that the owner has found and that are not delivered yet.
template <typename Flow>
struct PendingEvents {
    std::vector<Flow*> opened;
    // The lost rank, and the cause as the text after "rank N is gone: ".
    std::vector<std::pair<Rank, std::string>> lost;

    void add_loss(Rank own, Rank peer, const std::string& cause, Culprit culprit) {
        if (culprit == Culprit::own)
            lost.emplace_back(own, fmt::format("it cannot continue with rank {}: {}", peer, cause));
        else
            lost.emplace_back(peer, cause);
    }
};

/// Forwards a transport's events to its client. It reports the loss of a rank once, however many
/// engines find it.
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
