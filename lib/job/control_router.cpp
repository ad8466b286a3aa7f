#include "job/control_router.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "control/tree.h"
#include "net/socket.h"

namespace tutti {
namespace {

using Topic = TreeMessage::Topic;

TreeMessage as(Topic topic, TreeMessage message) {
    message.topic = topic;
    return message;
}

Bytes encode_loss(Rank lost, const std::string& cause) {
    return TreeMessage{.topic = Topic::loss, .lost = lost, .cause = cause}.encode();
}

Error version_error(Rank rank, const ControlTree::Hello& hello) {
    return fail_rank(Code::invalid, hello.rank,
                     "rank {} speaks version {} of the control protocol, rank {} version {}",
                     hello.rank, hello.version, rank, ControlTree::Hello::current_version)
        .advice("install the same version of tutti on every host")
        .value();
}

}  // namespace

Result<std::string> ControlRouter::listen(const std::string& host, Reactor& reactor) {
    net::HostPort at{.host = host};
    TUTTI_ASSIGN(UniqueFd listener, net::listen_tcp(at));
    TUTTI_ASSIGN(at.port, net::local_port(listener.get()));
    acceptor_ = std::make_unique<net::Acceptor>(
        reactor, std::move(listener), net::AuthKey{config_.secret, "control/" + config_.job},
        [this](UniqueFd fd, Bytes hello) { accept(std::move(fd), hello); },
        net::Acceptor::Options{});
    return net::format_host_port(at);
}

void ControlRouter::accept(UniqueFd fd, ByteView bytes) {
    const auto hello = ControlTree::Hello::decode(bytes);
    const Rank rank = hello ? hello->rank : nobody;
    const auto kind = hello ? hello->kind : ControlTree::LinkKind::branch;
    const bool known = kind == ControlTree::LinkKind::detour
                           ? in_job(rank) && rank != config_.rank
                           : rank > 0 && in_job(rank) && tree_parent(rank) == config_.rank;
    if (!known)
        return log::warn("rank {}: refused a control connection that claims to come from rank {}",
                         config_.rank, rank);
    // Attach the child nevertheless: failure messages are the same in every version.
    if (hello->version != ControlTree::Hello::current_version)
        assembly_.fail_start(version_error(config_.rank, *hello));
    if (const auto attached = control_.attach(rank, std::move(fd), kind); !attached)
        return log::warn("rank {}: refused a control connection of rank {}: {}", config_.rank, rank,
                         error_text(attached.error()));
    // A child that connects after the start has failed must hear of it, not take this rank's end
    // for an orderly one.
    if (kind == ControlTree::LinkKind::branch)
        assembly_.child_connected(rank);
    else if (leaving_)
        control_.send(rank, TreeMessage{.topic = Topic::leaving}.encode());
}

// Sends directly if there is a connection, else along the tree. False: the next rank there is gone.
bool ControlRouter::pass_on(Rank to, ByteView message) {
    return control_.send(to, message) || control_.send(tree_next_hop(config_.rank, to), message);
}

void ControlRouter::send(Rank to, const ControlMessage& message) {
    Bytes bytes =
        TreeMessage{.topic = Topic::control, .to = to, .from = config_.rank, .control = message}
            .encode();
    if (detours_.add_behind_others(to, bytes)) return;
    if (!pass_on(to, bytes)) detours_.add(to, std::move(bytes));
}

void ControlRouter::handle_message(Rank from, ByteView bytes) {
    const auto message = TreeMessage::decode(bytes, config_.size);
    if (!message)
        return log::warn("rank {}: received a malformed control message from rank {}", config_.rank,
                         from);
    switch (message->topic) {
        case Topic::bootstrap:
            return assembly_.receive(from, message->body);
        case Topic::control:
            return handle_control(*message);
        case Topic::returned:
            return handle_returned(*message);
        case Topic::loss:
            if (message->lost != config_.rank) mark_lost(message->lost, message->cause, from);
            return;
        case Topic::farewell:
            return control_.finish(from);
        case Topic::leaving:
            return handle_leaving(from);
    }
}

void ControlRouter::handle_control(const TreeMessage& message) {
    if (message.to != config_.rank) {
        // Its sender can open a detour, because it knows the addresses of the ranks to which it
        // sends.
        if (!pass_on(message.to, message.encode()))
            pass_on(message.from, as(Topic::returned, message).encode());
        return;
    }
    if (const auto answer = clients_.handle_message(message.from, message.control, !leaving_))
        send(message.from, *answer);
}

void ControlRouter::handle_returned(const TreeMessage& message) {
    if (message.from != config_.rank) {
        pass_on(message.from, message.encode());
    } else if (message.to != config_.rank) {
        detours_.add(message.to, as(Topic::control, message).encode());
    }
}

void ControlRouter::handle_leaving(Rank from) {
    control_.send(from, TreeMessage{.topic = Topic::farewell}.encode());
    control_.retire(from);
    const auto lock = clients_.hold();
    losses_.note_leaving(from);
    pass_losses_on(nobody);
}

void ControlRouter::link_closed(Rank peer, ControlTree::LinkKind kind, const std::string& cause) {
    if (leaving_) return;
    if (kind == ControlTree::LinkKind::branch)
        return mark_lost(peer, fmt::format("its process ended ({})", cause));
    const auto lock = clients_.hold();
    if (losses_.detour_ended(peer)) detours_.request(peer);
}

// Floods the loss even while this rank leaves: in some communicators no remaining member has a
// connection to the lost rank.
void ControlRouter::mark_lost(Rank peer, const std::string& cause, Rank except) {
    const auto lock = clients_.hold();
    if (!losses_.mark_lost(peer, cause)) return;
    transports_.peer_gone(peer);
    control_.flood(encode_loss(peer, cause), except);
    pass_losses_on(peer);
    if (clients_.empty())
        return assembly_.fail_start(
            {Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)});
    clients_.peer_lost(peer, cause);
}

// With the clients' lock held. Before the job is complete, the ends of the tree's connections
// suffice.
void ControlRouter::pass_losses_on(Rank lost) {
    if (clients_.empty() && !leaving_) return;
    const LossTable::ForNext tell = losses_.for_next(lost);
    for (const Rank peer : tell.lost) {
        Bytes message = encode_loss(peer, losses_.lost().at(peer));
        if (!control_.send(tell.next, message)) detours_.add(tell.next, std::move(message));
    }
}

void ControlRouter::replay_losses(EndpointClient& client) {
    for (auto& [peer, cause] : losses_.lost()) client.peer_lost(peer, cause);
    for (const Rank peer : losses_.unreachable()) client.unreachable(peer);
    pass_losses_on(nobody);
}

void ControlRouter::open_detour(Rank to) {
    const bool known_gone = [&] {
        const auto lock = clients_.hold();
        return losses_.is_gone(to);
    }();
    const Result<> opened =
        known_gone ? fail_rank(Code::peer_lost, to, "rank {} is gone", to) : detours_.open(to);
    if (!opened) cut_off(to, opened.error());
}

// Mostly the peer has left, too. If it is slow, or its host does not answer, it has not ended. If
// no process listens there (peer_lost), its neighbours in the communicators' trees find each other.
void ControlRouter::cut_off(Rank peer, const Error& why) {
    log::info("rank {}: no way to rank {} for control messages any more: {}", config_.rank, peer,
              why.message);
    const auto lock = clients_.hold();
    detours_.close(peer);
    const bool unreachable = losses_.cut_off(peer, why.code == Code::peer_lost && why.rank == peer);
    pass_losses_on(nobody);
    if (unreachable) clients_.unreachable(peer);
}

void ControlRouter::stop_waiting_for(Rank rank) {
    const auto lock = clients_.hold();
    losses_.stop_waiting_for(rank);
}

bool ControlRouter::drop_links_not_waited_for() {
    const auto lock = clients_.hold();
    for (const Rank rank : losses_.not_waited_for()) {
        control_.finish(rank);
        transports_.peer_gone(rank);
    }
    return !losses_.not_waited_for().empty();
}

}  // namespace tutti
