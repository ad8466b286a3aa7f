// Messages along the control tree, and round it where a rank that passed them on is gone.
#include <unistd.h>

#include "base/log.h"
#include "comm/endpoint.h"
#include "net/socket.h"
#include "store/tree.h"

namespace tutti {
namespace {

// The first byte of a control message. news: to, from, and a communicator's news, passed on until
// it is there. returned: the same, on its way back because a rank ahead is gone. loss: a rank that
// is gone and why, for everyone. leaving: the sender's process ends in order; farewell: the answer,
// the last that it gets.
enum class Topic : uint8_t { bootstrap, news, loss, leaving, returned, farewell };
constexpr uint32_t max_cause_bytes = 1024;
constexpr std::size_t head_bytes = sizeof(Topic) + 2 * sizeof(Rank);  // of news
constexpr int64_t detour_ms = 1000;   // for one to a rank that is known to have been there
constexpr int64_t farewell_ms = 200;  // for those who drive their communicators themselves
constexpr std::optional<News> none;

Bytes with_topic(Topic topic, ByteView message) {
    Bytes copy(message.begin(), message.end());
    copy[0] = static_cast<std::byte>(topic);
    return copy;
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
    ByteWriter out;
    out.put(Topic::news).put(to).put(config_.rank);
    Bytes message = out.take();
    const Bytes body = news.encode();
    message.insert(message.end(), body.begin(), body.end());
    {
        // What waits for a detour goes first.
        const std::lock_guard lock(mutex_);
        if (const auto waiting = detours_.find(to); waiting != detours_.end()) {
            waiting->second.push_back(std::move(message));
            return;
        }
    }
    if (!pass_on(to, message)) go_round(to, std::move(message));
}

// Called with locks of a communicator held: somebody else connects.
void Endpoint::go_round(Rank to, Bytes message) {
    if (next_hop(to) == to) return;  // a neighbour: it is gone itself
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
        control_.send(rank, ByteWriter().put(Topic::leaving).take());
}

Error Endpoint::version_error(const ControlTree::Hello& hello) const {
    return {Code::invalid, hello.rank, 0,
            fmt::format("rank {} speaks version {} of the control protocol, rank {} version {}: "
                        "install the same version of tutti everywhere",
                        hello.rank, hello.version, config_.rank,
                        ControlTree::Hello::current_version)};
}

// As peer(), of a rank that was there and may have taken its record along.
Result<const PeerRecord*> Endpoint::peer_if_there(Rank rank, Deadline deadline) {
    if (const PeerRecord* known = known_peer(rank)) return known;
    TUTTI_ASSIGN(const auto text, store_->look(key(rank), deadline));
    if (!text) return fail_rank(Code::peer_lost, rank, "rank {} has left the store", rank);
    return keep_peer(rank, *text);
}

Result<UniqueFd> Endpoint::connect_control(Rank to, Deadline deadline) {
    TUTTI_ASSIGN(const PeerRecord* record, peer_if_there(to, deadline));
    TUTTI_ASSIGN(const net::HostPort address, net::parse_host_port(record->control));
    const net::AuthKey secret{config_.secret, "control/" + config_.job};
    const Bytes hello =
        ControlTree::Hello{.rank = config_.rank, .kind = ControlTree::LinkKind::detour}.encode();
    for (net::Redial redial;;) {
        TUTTI_ASSIGN(UniqueFd fd,
                     net::connect_tcp(address, {.deadline = deadline, .keep_trying = false}));
        const auto met = net::introduce(fd.get(), secret, hello, deadline);
        if (met) return fd;
        if (!redial.again(met.error(), deadline)) return tl::unexpected(met.error());
    }
}

void Endpoint::open_detour(Rank to) {
    const auto left_ms = [this] {
        const std::lock_guard lock(mutex_);
        return std::max<int64_t>(1, detours_end_.left_ms(detour_ms));
    };
    auto fd = connect_control(to, Deadline::after_ms(left_ms()));
    const Result<> there = fd ? control_.attach(to, std::move(*fd), ControlTree::LinkKind::detour)
                              : tl::unexpected(std::move(fd).error());
    // Nobody overtakes what has waited.
    const std::lock_guard lock(mutex_);
    const auto waiting = detours_.extract(to);
    if (!there) {
        // Mostly it has left, too.
        log::info("rank {}: no way to rank {} for news any more: {}", config_.rank, to,
                  there.error().message);
        cut_off_.insert(to);
        return;
    }
    for (const Bytes& message : waiting.mapped()) control_.send(to, message);
}

// The last news of this rank may be among them.
void Endpoint::finish_detours() {
    const auto patience = Deadline::after_ms(detour_ms);
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

void Endpoint::meet_neighbours(const Group& group, Deadline deadline) {
    std::vector<Rank> neighbours = tree_children(group.rank(), group.size());
    if (group.rank() != 0) neighbours.push_back(tree_parent(group.rank()));
    for (const Rank neighbour : neighbours) {
        const auto record = peer(group.in_job(neighbour), deadline);
        if (!record) log::info("rank {}: {}", config_.rank, record.error().message);
    }
}

// What others send through this rank until they hear of it is passed on: each answers.
void Endpoint::take_leave(Deadline deadline) {
    control_.flood(ByteWriter().put(Topic::leaving).take(), nobody);
    const int64_t most_ms = std::max<int64_t>(1, deadline.left_ms(farewell_ms));
    for (const auto patience = Deadline::after_ms(most_ms);
         !control_.finished() && !patience.passed(); ::usleep(20))
        pump();
}

void Endpoint::announce_loss(Rank peer, const std::string& cause, Rank except) {
    control_.flood(ByteWriter()
                       .put(Topic::loss)
                       .put(peer)
                       .put_text(std::string_view(cause).substr(0, max_cause_bytes))
                       .take(),
                   except);
}

void Endpoint::control_message(Rank from, ByteView message) {
    if (message.empty()) return;
    const ByteView body = message.subspan(1);
    switch (static_cast<Topic>(message[0])) {
        case Topic::bootstrap:
            return bootstrap_step([&] { bootstrap_->receive(from, body); });
        case Topic::news:
            return take_news(message);
        case Topic::returned:
            return take_returned(message);
        case Topic::loss:
            return take_loss(from, body);
        case Topic::farewell:
            return control_.finish(from);
        case Topic::leaving: {
            control_.send(from, ByteWriter().put(Topic::farewell).take());
            control_.retire(from);
            const std::lock_guard lock(clients_mutex_);
            left_.insert(from);
            return;
        }
    }
    log::warn("rank {}: a control message of an unknown kind from rank {}", config_.rank, from);
}

void Endpoint::take_news(ByteView message) {
    ByteReader in(message);
    in.get<Topic>();
    const auto to = in.get<Rank>(), from = in.get<Rank>();
    const auto news =
        in.ok() && in_job(to) && in_job(from) ? News::decode(message.subspan(head_bytes)) : none;
    if (!news) {
        log::warn("rank {}: a malformed control message", config_.rank);
        return;
    }
    if (to != config_.rank) {
        // Its sender can go round, knowing where those are that it writes to.
        if (!pass_on(to, message)) pass_on(from, with_topic(Topic::returned, message));
        return;
    }
    const std::lock_guard lock(clients_mutex_);
    const auto client = clients_.find(news->comm);
    if (client != clients_.end()) {
        client->second->news(from, *news);
    } else if (!leaving_ && !removed_.contains(news->comm)) {
        early_news_.keep(from, *news);
    }
}

void Endpoint::take_returned(ByteView message) {
    ByteReader in(message);
    in.get<Topic>();
    const auto to = in.get<Rank>(), from = in.get<Rank>();
    if (!in.ok() || !in_job(to) || !in_job(from) || to == config_.rank) {
        log::warn("rank {}: a malformed control message", config_.rank);
    } else if (from != config_.rank) {
        pass_on(from, message);
    } else {
        go_round(to, with_topic(Topic::news, message));
    }
}

void Endpoint::take_loss(Rank from, ByteView body) {
    ByteReader in(body);
    const auto peer = in.get<Rank>();
    const std::string cause = in.get_text(max_cause_bytes);
    if (in.at_end() && peer >= 0 && peer < config_.size && peer != config_.rank)
        lose(peer, cause, from);
}

void Endpoint::control_closed(Rank peer, const std::string& cause) {
    lose(peer, fmt::format("its process ended ({})", cause), nobody);
}

}  // namespace tutti
