// Messages along the control tree, and round it where a rank that passed them on is gone.
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/log.h"
#include "control/tree.h"
#include "job/endpoint.h"
#include "net/serving.h"
#include "net/socket.h"

namespace tutti {
namespace {

using Topic = TreeMessage::Topic;

constexpr int64_t detour_ms = 1000;         // for one to a rank that is known to have been there
constexpr int64_t farewell_ms = 200;        // for those who drive their communicators themselves
constexpr int64_t failed_farewell_ms = 30;  // where news of the failure went before
constexpr Rank ring_known = 4;         // ranks after this one whose address it knows from the start
constexpr int most_ended_detours = 3;  // of one peer that are looked into

TreeMessage as(Topic topic, TreeMessage message) {
    message.topic = topic;
    return message;
}

}  // namespace

// Down into the child's subtree that has it, else up.
Rank Endpoint::next_hop(Rank to) const {
    for (Rank at = to; at != nobody; at = tree_parent(at))
        if (tree_parent(at) == config_.rank) return at;
    return tree_parent(config_.rank);
}

// Straight where there is a connection, else along the tree. false: the next rank there is gone.
bool Endpoint::pass_on(Rank to, ByteView message) {
    return control_.send(to, message) || control_.send(next_hop(to), message);
}

void Endpoint::send_control(Rank to, const News& news) {
    Bytes message =
        TreeMessage{.topic = Topic::news, .to = to, .from = config_.rank, .news = news}.encode();
    {
        // What waits for a detour goes first.
        const std::lock_guard lock(mutex_);
        if (const auto waiting = detours_.find(to); waiting != detours_.end()) {
            waiting->second.push_back(std::move(message));
            return;
        }
    }
    if (!pass_on(to, message)) send_via_detour(to, std::move(message));
}

// Called with locks of a communicator held: somebody else connects.
void Endpoint::send_via_detour(Rank to, Bytes message) {
    {
        const std::lock_guard lock(mutex_);
        if (cut_off_.count(to) > 0) return;
        detours_[to].push_back(std::move(message));
    }
    kick();
}

void Endpoint::take_connection(UniqueFd fd, ByteView bytes) {
    const auto hello = ControlTree::Hello::decode(bytes);
    const Rank rank = hello ? hello->rank : nobody;
    const auto kind = hello ? hello->kind : ControlTree::LinkKind::branch;
    const bool known = kind == ControlTree::LinkKind::detour
                           ? in_job(rank) && rank != config_.rank
                           : rank > 0 && in_job(rank) && tree_parent(rank) == config_.rank;
    if (!known)
        return log::warn("rank {}: refused a control connection that claims to be rank {}",
                         config_.rank, rank);
    const bool same = hello->version == ControlTree::Hello::current_version;
    // The child is attached nevertheless: failures are told alike in every version.
    if (!same)
        bootstrap_step([&] {
            if (bootstrap_->state() != Bootstrap::State::done)
                bootstrap_->fail_with(version_error(*hello));
        });
    if (const auto attached = control_.attach(rank, std::move(fd), kind); !attached)
        return log::warn("rank {}: refused a control connection of rank {}: {}", config_.rank, rank,
                         attached.error().message);
    // A child that comes when the start has failed must not take this rank's end for one in order.
    if (kind == ControlTree::LinkKind::branch)
        bootstrap_step([&] { bootstrap_->met(rank); });
    else if (leaving_)
        control_.send(rank, TreeMessage{.topic = Topic::leaving}.encode());
}

Error Endpoint::version_error(const ControlTree::Hello& hello) const {
    return {
        Code::invalid, hello.rank, 0,
        fmt::format("rank {} speaks version {} of the control protocol, rank {} version {}: "
                    "install the same version of tutti everywhere",
                    hello.rank, hello.version, config_.rank, ControlTree::Hello::current_version)};
}

Result<UniqueFd> Endpoint::connect_control(Rank to, Deadline deadline) {
    TUTTI_ASSIGN(const PeerRecord* record, directory_.find_if_there(to, deadline));
    TUTTI_ASSIGN(const net::HostPort address, net::parse_host_port(record->control));
    const net::AuthKey secret{config_.secret, "control/" + config_.job};
    const Bytes hello =
        ControlTree::Hello{.rank = config_.rank, .kind = ControlTree::LinkKind::detour}.encode();
    for (net::Redial redial;;) {
        auto fd = net::connect_tcp(address, {.deadline = deadline, .keep_trying = false});
        if (!fd && fd.error().sys_errno == ECONNREFUSED)
            return fail_rank(Code::peer_lost, to, "nothing listens there any more: {}",
                             fd.error().message);
        if (!fd) return fd;
        const auto met = net::introduce(fd->get(), secret, hello, deadline);
        if (met) return fd;
        if (!redial.again(met.error(), deadline)) return tl::unexpected(met.error());
    }
}

void Endpoint::open_detour(Rank to) {
    const auto left_ms = [this] {
        const std::lock_guard lock(mutex_);
        return std::max<int64_t>(1, detours_end_.left_ms(detour_ms));
    };
    const net::GiveUpWhen too_late(leaving_);
    const bool known_gone = [&] {
        const auto lock = clients_.hold();
        return is_gone(to);
    }();
    Result<UniqueFd> fd = known_gone ? fail_rank(Code::peer_lost, to, "it is gone")
                                     : connect_control(to, Deadline::after_ms(left_ms()));
    const Result<> there = fd ? control_.attach(to, std::move(*fd), ControlTree::LinkKind::detour)
                              : tl::unexpected(std::move(fd).error());
    if (!there) return cut_off(to, there.error());
    // Nobody overtakes what has waited.
    const std::lock_guard lock(mutex_);
    const auto waiting = detours_.extract(to);
    for (const Bytes& message : waiting.mapped()) control_.send(to, message);
}

/// Whether a rank has ended, in order or not, as far as this rank knows. With the clients' lock.
bool Endpoint::is_gone(Rank peer) const {
    return left_.count(peer) > 0 || lost_.count(peer) > 0 || unreachable_.count(peer) > 0;
}

// Mostly it has left, too. Where it is slow, or its host does not answer, that is no end; else its
// neighbours in the communicators' trees find each other.
void Endpoint::cut_off(Rank peer, const Error& why) {
    log::info("rank {}: no way to rank {} for news any more: {}", config_.rank, peer, why.message);
    const bool ended = why.code == Code::peer_lost && why.rank == peer;
    const auto lock = clients_.hold();
    {
        const std::lock_guard waiting(mutex_);
        cut_off_.insert(peer);
        detours_.erase(peer);
    }
    tell_next(nobody);
    if (ended && unreachable_.insert(peer).second) clients_.unreachable(peer);
}

// The second way for a loss, next to the control tree, of which any rank may be gone: round the
// ring of all ranks that are there. Each knows that the next one has been told of all that are
// lost; nobody: of no new one.
void Endpoint::tell_next(Rank lost) {
    // Before all are there, the control tree's ends are enough.
    if (lost_.empty() || (clients_.empty() && !leaving_)) return;
    const auto there = [this](Rank rank) {
        const std::lock_guard lock(mutex_);
        return cut_off_.count(rank) == 0 && !is_gone(rank);
    };
    Rank next = config_.rank;
    do next = (next + 1) % config_.size;
    while (next != config_.rank && !there(next));
    if (next == config_.rank) return;
    const bool all = std::exchange(ring_next_, next) != next;
    for (const auto& [peer, cause] : lost_) {
        if (!all && peer != lost) continue;
        Bytes message = TreeMessage{.topic = Topic::loss, .lost = peer, .cause = cause}.encode();
        if (!control_.send(next, message)) send_via_detour(next, std::move(message));
    }
}

// The last news of this rank may be among them.
void Endpoint::finish_detours(Deadline deadline) {
    const auto patience = Deadline::after_ms(std::max<int64_t>(1, deadline.left_ms(detour_ms)));
    {
        const std::lock_guard lock(mutex_);
        detours_end_ = patience;
    }
    for (; !patience.passed(); ::usleep(100)) {
        {
            const std::lock_guard lock(mutex_);
            if (detours_.empty()) return;
        }
        pump();
    }
}

// A rank that ends may take the store along.
void Endpoint::meet_ring() {
    const bool of_launcher = config_.store_hosted && !config_.store_in_job;
    const bool outlives_ranks = of_launcher || !config_.store.starts_with("tcp:");
    const Rank most = outlives_ranks ? 0 : std::min(ring_known, config_.size - 1);
    for (Rank step = 1; step <= most; ++step) {
        const auto record = directory_.find((config_.rank + step) % config_.size, deadline_);
        if (!record) return log::info("rank {}: {}", config_.rank, record.error().message);
    }
}

void Endpoint::meet_neighbours(const Group& group, Deadline deadline) {
    std::vector<Rank> neighbours = tree_children(group.rank(), group.size());
    if (group.rank() != 0) neighbours.push_back(tree_parent(group.rank()));
    for (const Rank neighbour : neighbours) {
        const auto record = directory_.find(group.in_job(neighbour), deadline);
        if (!record) log::info("rank {}: {}", config_.rank, record.error().message);
    }
}

// What others send through this rank until they hear of it is passed on: each answers.
void Endpoint::take_leave(Deadline deadline, bool failed) {
    // A peer that leaves, too, answers: else ranks that leave at once would wait for each other's
    // end.
    control_.flood_last(TreeMessage{.topic = Topic::leaving}.encode());
    const int64_t most_ms =
        std::max<int64_t>(1, deadline.left_ms(failed ? failed_farewell_ms : farewell_ms));
    for (const auto patience = Deadline::after_ms(most_ms);
         !control_.finished() && !patience.passed(); ::usleep(20)) {
        pump();
        // A neighbour keeps its link until this rank's transports have answered its goodbye.
        progress();
    }
}

void Endpoint::announce_loss(Rank peer, const std::string& cause, Rank except) {
    control_.flood(TreeMessage{.topic = Topic::loss, .lost = peer, .cause = cause}.encode(),
                   except);
}

void Endpoint::control_message(Rank from, ByteView bytes) {
    const auto message = TreeMessage::decode(bytes, config_.size);
    if (!message)
        return log::warn("rank {}: a malformed control message from rank {}", config_.rank, from);
    switch (message->topic) {
        case Topic::bootstrap:
            return bootstrap_step([&] { bootstrap_->receive(from, message->body); });
        case Topic::news:
            return take_news(*message);
        case Topic::returned:
            return take_returned(*message);
        case Topic::loss:
            if (message->lost != config_.rank) lose(message->lost, message->cause, from);
            return;
        case Topic::farewell:
            return control_.finish(from);
        case Topic::leaving: {
            control_.send(from, TreeMessage{.topic = Topic::farewell}.encode());
            control_.retire(from);
            const auto lock = clients_.hold();
            left_.insert(from);
            return tell_next(nobody);
        }
    }
}

void Endpoint::take_news(const TreeMessage& message) {
    if (message.to != config_.rank) {
        // Its sender can go round, knowing where those are that it writes to.
        if (!pass_on(message.to, message.encode()))
            pass_on(message.from, as(Topic::returned, message).encode());
        return;
    }
    clients_.news(message.from, message.news, !leaving_);
}

void Endpoint::take_returned(const TreeMessage& message) {
    if (message.from != config_.rank) {
        pass_on(message.from, message.encode());
    } else if (message.to != config_.rank) {
        send_via_detour(message.to, as(Topic::news, message).encode());
    }
}

void Endpoint::control_closed(Rank peer, ControlTree::LinkKind kind, const std::string& cause) {
    if (leaving_) return;
    if (kind == ControlTree::LinkKind::branch)
        return lose(peer, fmt::format("its process ended ({})", cause), nobody);
    // It is called again: only if nothing listens there has it ended.
    {
        const auto lock = clients_.hold();
        if (is_gone(peer) || ++ended_detours_[peer] > most_ended_detours) return;
        const std::lock_guard waiting(mutex_);
        detours_.try_emplace(peer);
    }
    kick();
}

}  // namespace tutti
