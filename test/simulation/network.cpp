#include "simulation/network.h"

#include <algorithm>
#include <utility>

#include "simulation/rank.h"
#include "simulation/world.h"
#include "transport/peer_limits.h"

namespace simulation {
namespace {

struct Kind {
    uint8_t topic = 0, message = 0;
};

Kind kind_of(ByteView bytes) {
    constexpr std::size_t at = 1 + 2 * sizeof(Rank);  // TreeMessage: topic, to, from
    Kind kind;
    if (!bytes.empty()) kind.topic = std::to_integer<uint8_t>(bytes[0]);
    if (kind.topic == static_cast<uint8_t>(TreeMessage::Topic::control) && bytes.size() > at)
        kind.message = std::to_integer<uint8_t>(bytes[at]);
    return kind;
}

// For the trace: the content of an agreement's message, from a rank in a job of that size.
std::string agreement_text(ByteView bytes, Rank size) {
    const auto tree = TreeMessage::decode(bytes, size);
    if (!tree || tree->topic != TreeMessage::Topic::control ||
        tree->control.kind != ControlMessage::Kind::agree)
        return {};
    const auto message = AgreementMessage::decode(tree->control.body, size);
    if (!message) return {};
    constexpr std::array roles = {"statement", "inquiry", "decision"};
    const Knowledge& known = message->known;
    return fmt::format(": {} of {}.{}{}, known dead {}, left {}, leavers {}, {} accusations",
                       roles[static_cast<std::size_t>(message->role)], message->instance >> 16,
                       message->instance & 0xffff, message->wants_answer ? ", wants answer" : "",
                       ranks_text(known.dead), ranks_text(known.left), ranks_text(known.leavers),
                       known.accusations.size());
}

}  // namespace

// ---- connections -----------------------------------------------------------------------------

int64_t Network::arrival(Rank from, Rank to, Direction& direction) {
    const Scenario& s = world_.scenario();
    Random& random = world_.random();
    const int64_t usual = random.spread(1 * us, s.latency_ns);
    const int64_t latency = s.tail_percent > 0 && random.percent(s.tail_percent)
                                ? random.spread(s.latency_ns, s.tail_ns)
                                : usual;
    const int64_t time = world_.open_from(from, to, world_.now()) + latency;
    direction.last_arrival = std::max(direction.last_arrival, time);
    return direction.last_arrival;
}

std::shared_ptr<Attempt> Network::dial(Rank from, Rank to, ControlLinks::LinkKind kind,
                                       int64_t patience_ns, std::function<void(Dialled)> done) {
    auto attempt = std::make_shared<Attempt>();
    attempt->from = from;
    attempt->to = to;
    attempt->kind = kind;
    attempt->done = std::move(done);
    world_.note("rank {} dials rank {}", from, to);
    Direction alone;
    world_.at(arrival(from, to, alone), [this, attempt] { accept(attempt); });
    world_.after(patience_ns, [this, attempt] {
        world_.rank(attempt->from).serve([this, attempt] { abandon(attempt); });
    });
    return attempt;
}

void Network::abandon(const std::shared_ptr<Attempt>& attempt) {
    if (std::exchange(attempt->over, true)) return;
    attempt->done(Dialled::timed_out);
}

void Network::refuse(const std::shared_ptr<Attempt>& attempt) {
    Direction alone;
    world_.at(arrival(attempt->to, attempt->from, alone), [this, attempt] {
        world_.rank(attempt->from).serve([attempt] {
            if (!std::exchange(attempt->over, true)) attempt->done(Dialled::refused);
        });
    });
}

// A process that dies takes connections until its listener is closed; a stopped one keeps the
// caller waiting.
void Network::accept(const std::shared_ptr<Attempt>& attempt) {
    SimRank& target = world_.rank(attempt->to);
    if (!target.listens()) {
        const int64_t at = std::max(world_.now(), target.closes_at());
        return world_.at(at, [this, attempt] { refuse(attempt); });
    }
    target.when_closed([this, attempt] { refuse(attempt); });
    target.serve([this, attempt] {
        if (attempt->over || !world_.rank(attempt->from).is_alive()) return;
        auto link = std::make_shared<Link>();
        link->kind = attempt->kind;
        link->ends[0].rank = attempt->from;
        link->ends[1].rank = attempt->to;
        SimRank& accepting = world_.rank(attempt->to);
        if (!accepting.links().attach(link, 1)) return;
        ++open_links_;
        world_.rank(attempt->from).when_closed([this, link] { close(link, 0, 0); });
        accepting.accepted(attempt->from, attempt->kind);
        const int64_t back = arrival(attempt->to, attempt->from, link->ends[1].out);
        world_.at(back, [this, attempt, link] {
            world_.rank(attempt->from).serve([this, attempt, link] {
                if (attempt->over) return close(link, 0, 0);
                attempt->over = true;
                if (!world_.rank(attempt->from).links().attach(link, 0)) close(link, 0, 0);
                attempt->done(Dialled::connected);
            });
        });
    });
}

void Network::close(const std::shared_ptr<Link>& link, int side, int64_t delay_ns) {
    Link::End& own = link->ends[static_cast<std::size_t>(side)];
    Link::End& other = link->ends[static_cast<std::size_t>(1 - side)];
    if (std::exchange(own.closed, true)) return;
    if (other.closed) {
        --open_links_;
        return;
    }
    world_.after(delay_ns, [this, link, side, &own, &other] {
        const int64_t at = arrival(own.rank, other.rank, own.out);
        world_.at(at, [this, link, side, &own, &other] {
            other.ended = true;
            world_.rank(other.rank).serve([this, link, side, &own, &other] {
                if (std::exchange(other.closed, true)) return;
                --open_links_;
                SimRank& rank = world_.rank(other.rank);
                rank.links().detach(link);
                static_cast<void>(side);
                if (other.attached) rank.link_closed(own.rank, link->kind);
            });
        });
    });
}

void Network::lose_some(Direction& direction) {
    Random& random = world_.random();
    const uint64_t way = random.below(10);
    if (way < 4) return;
    direction.limit =
        way < 7 ? direction.arrived : random.between(direction.arrived, direction.sent);
}

void Network::note_channel(Rank from, Rank to, const std::shared_ptr<Direction>& direction) {
    data_peers_[from].insert(to);
    data_peers_[to].insert(from);
    channels_[from].push_back(direction);
}

void Network::lose_channels_of(Rank rank) {
    for (const auto& direction : channels_[rank]) lose_some(*direction);
}

// ---- one rank's ------------------------------------------------------------------------------

bool SimLinks::attach(const std::shared_ptr<Link>& link, int side) {
    const auto at = static_cast<std::size_t>(side);
    const Rank peer = link->ends[1 - at].rank;
    const std::size_t held = links_.count(peer);
    if ((link->kind == LinkKind::branch && held > 0) || held >= PeerLimits{}.control_connections)
        return false;
    link->ends[at].attached = true;
    links_.emplace(peer, Held{link, side});
    return true;
}

void SimLinks::detach(const std::shared_ptr<Link>& link) {
    std::erase_if(links_, [&](const auto& entry) { return entry.second.first == link; });
}

bool SimLinks::put(const Held& held, ByteView message) {
    const auto& [link, side] = held;
    const auto at = static_cast<std::size_t>(side);
    Link::End& own = link->ends[at];
    Link::End& other = link->ends[1 - at];
    if (own.closed || own.ended) return false;
    if (world_.rank(rank_).is_dead()) return true;
    const Kind kind = kind_of(message);
    const uint64_t number = own.out.sent++;
    const int64_t time = world_.network().arrival(rank_, other.rank, own.out);
    if (world_.traces())
        world_.note("rank {} sends rank {} topic {} kind {} ({} bytes){}", rank_, other.rank,
                    kind.topic, kind.message, message.size(),
                    agreement_text(message, world_.scenario().size));
    world_.at(time, [this, link = link, &own, &other, number,
                     bytes = Bytes(message.begin(), message.end()), to = 1 - side] {
        if (number >= own.out.limit) return;
        own.out.arrived = number + 1;
        World& world = world_;
        world.rank(other.rank).serve([&world, link, &other, bytes, to] {
            world.rank(other.rank).links().receive(link, to, bytes);
        });
    });
    world_.message_passes(Fault::When::sent, rank_, kind.topic, kind.message);
    return true;
}

void SimLinks::receive(const std::shared_ptr<Link>& link, int side, const Bytes& message) {
    const auto at = static_cast<std::size_t>(side);
    if (link->ends[at].closed) return;
    const Rank from = link->ends[1 - at].rank;
    const Kind kind = kind_of(message);
    world_.note("rank {} gets from rank {} topic {} kind {}", rank_, from, kind.topic,
                kind.message);
    world_.mix(static_cast<uint64_t>(rank_) << 32 | static_cast<uint64_t>(from),
               static_cast<uint64_t>(world_.now()) ^ kind.message);
    world_.message_passes(Fault::When::received, rank_, kind.topic, kind.message);
    if (!world_.rank(rank_).is_dead()) world_.rank(rank_).received(from, message);
}

bool SimLinks::send(Rank to, ByteView message) {
    const auto found = links_.lower_bound(to);
    if (found == links_.end() || found->first != to) return false;
    const auto& [link, side] = found->second;
    if (link->ends[static_cast<std::size_t>(side)].retired) return false;
    return put(Held{link, side}, message);
}

void SimLinks::flood(ByteView message, Rank except) {
    for (const auto& [peer, held] : std::multimap(links_))
        if (peer != except && !held.first->ends[static_cast<std::size_t>(held.second)].retired)
            put(held, message);
}

void SimLinks::flood_last(ByteView message) {
    for (const auto& [peer, held] : std::multimap(links_)) put(held, message);
}

void SimLinks::retire(Rank peer) {
    const auto [first, last] = links_.equal_range(peer);
    for (auto at = first; at != last; ++at)
        at->second.first->ends[static_cast<std::size_t>(at->second.second)].retired = true;
}

void SimLinks::finish(Rank peer) {
    const auto [first, last] = links_.equal_range(peer);
    for (auto at = first; at != last; ++at)
        at->second.first->ends[static_cast<std::size_t>(at->second.second)].finished = true;
}

bool SimLinks::finished() const {
    return std::all_of(links_.begin(), links_.end(), [](const auto& entry) {
        return entry.second.first->ends[static_cast<std::size_t>(entry.second.second)].finished;
    });
}

void SimLinks::close_all(int64_t delay_ns, bool dead) {
    for (const auto& [peer, held] : std::exchange(links_, {})) {
        const auto& [link, side] = held;
        const auto at = static_cast<std::size_t>(side);
        const Direction& unread = link->ends[1 - at].out;
        const bool reset = world_.scenario().resets && unread.arrived < unread.sent;
        if (dead || reset) world_.network().lose_some(link->ends[at].out);
        world_.network().close(link, side, delay_ns);
    }
}

}  // namespace simulation
