// The flows of an engine. It opens and finds them, and deletes them after their communicator is
// retired.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "transport/posted/flow.h"
#include "transport/posted/retired.h"

namespace tutti {

/// The most channels that a rank opens to one peer in one engine.
inline constexpr std::size_t max_channels = 4096;
/// The most channels of one peer, including this rank's own. With the credits and the message size
/// it bounds the memory that a peer can make this rank keep. Twice max_channels, because the peer
/// may have closed channels that this rank still has.
inline constexpr std::size_t max_channels_taken = 2 * max_channels;

/// A flow keeps its address until both halves are closed, its communicator is retired, and none of
/// its messages is queued or arriving. Only the engine's owner uses the table.
template <typename Flow>
class FlowTable {
public:
    /// medium: names an engine in errors: "connection".
    FlowTable(const Retired* retired, std::string_view medium)
        : retired_(retired), medium_(medium) {}

    Flow* find(const ChannelId& id) {
        Flow*& recent = recent_[place_of(id)];
        if (recent && recent->id == id) return recent;
        Flow* const found = look_up(id);
        if (found) recent = found;
        return found;
    }
    /// extra: further arguments of a flow's constructor, after its id. nullptr: the peer has too
    /// many flows.
    template <typename... Extra>
    Flow* find_or_add(const ChannelId& id, Extra&... extra) {
        if (Flow* const flow = find(id)) return flow;
        auto& flows = peers_[id.peer].flows;
        if (flows.size() >= max_channels_taken) return nullptr;
        return (flows[key_of(id)] = std::make_unique<Flow>(id, extra...)).get();
    }
    /// A flow for a new sender; the owner must still announce it to the peer.
    template <typename... Extra>
    Result<Flow*> open(const ChannelId& id, Extra&... extra);
    bool is_retired(uint32_t comm) const { return retired_->contains(comm); }
    /// An error: this rank has left the communicator.
    Result<> check_alive(const ChannelId& id) const {
        if (!is_retired(id.comm)) return {};
        return fail_rank(Code::invalid, id.peer, "communicator {} is destroyed", id.comm)
            .advice("make a new communicator");
    }

    void close_sender(Flow& flow) {
        flow.out.open.store(false, std::memory_order_relaxed);
        half_closed(flow);
    }
    /// One half is closed. A channel may be opened again as long as its communicator lives.
    void half_closed(Flow& flow) {
        if (!flow.out.open.load(std::memory_order_relaxed) && !flow.in.live &&
            is_retired(flow.id.comm))
            forgotten_.push_back(&flow);
    }
    bool any_forgotten() const { return !forgotten_.empty(); }
    /// Deletes the flows with both halves closed that are not in use, and calls release() with
    /// each.
    template <typename InUse, typename Release>
    void forget(InUse in_use, Release release);

    template <typename F>
    void each(Rank peer, F f) {
        if (const auto found = peers_.find(peer); found != peers_.end())
            for (auto& [key, flow] : found->second.flows) f(*flow);
    }

private:
    struct OfPeer {
        std::unordered_map<uint64_t, std::unique_ptr<Flow>> flows;
        std::size_t opened = 0;  // opened by this rank
    };
    static uint64_t key_of(const ChannelId& id) { return uint64_t{id.comm} << 16 | id.lane; }
    static std::size_t place_of(const ChannelId& id) {
        return (static_cast<std::size_t>(id.peer) * 17 + id.comm * 5 + id.lane) % cached_flows;
    }
    Flow* look_up(const ChannelId& id) {
        const auto peer = peers_.find(id.peer);
        if (peer == peers_.end()) return nullptr;
        const auto found = peer->second.flows.find(key_of(id));
        return found == peer->second.flows.end() ? nullptr : found->second.get();
    }

    static constexpr std::size_t cached_flows = 64;  // found without hashing

    const Retired* const retired_;
    const std::string_view medium_;
    std::unordered_map<Rank, OfPeer> peers_;
    std::array<Flow*, cached_flows> recent_{};
    std::vector<Flow*> forgotten_;  // both halves closed; deleted once no message of them is in
                                    // flight
};

template <typename Flow>
template <typename... Extra>
Result<Flow*> FlowTable<Flow>::open(const ChannelId& id, Extra&... extra) {
    TUTTI_TRY(check_alive(id));
    const Flow* const known = find(id);
    std::size_t& opened = peers_[id.peer].opened;
    const bool again = known && known->ours;
    Flow* const flow = again || opened < max_channels ? find_or_add(id, extra...) : nullptr;
    if (!flow)
        return fail_rank(Code::invalid, id.peer,
                         "rank {} has {} channels on one {} already, which is the limit", id.peer,
                         max_channels, medium_)
            .advice("destroy communicators that are not used any more");
    if (flow->out.open.load(std::memory_order_relaxed))
        return fail_rank(Code::invalid, id.peer,
                         "lane {} of communicator {} to rank {} is open already", id.lane, id.comm,
                         id.peer)
            .advice("open each lane once");
    flow->out.open.store(true, std::memory_order_relaxed);
    opened += std::exchange(flow->ours, true) ? 0 : 1;
    flow->open_due = true;
    return flow;
}

template <typename Flow>
template <typename InUse, typename Release>
void FlowTable<Flow>::forget(InUse in_use, Release release) {
    std::erase_if(forgotten_, [&](Flow* flow) {
        if (in_use(*flow)) return false;
        release(*flow);
        const ChannelId id = flow->id;
        if (Flow*& recent = recent_[place_of(id)]; recent == flow) recent = nullptr;
        OfPeer& peer = peers_[id.peer];
        peer.opened -= flow->ours ? 1 : 0;
        peer.flows.erase(key_of(id));
        return true;
    });
}

}  // namespace tutti
