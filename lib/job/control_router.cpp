#include "job/control_router.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "control/tree.h"

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

}  // namespace

// Sends directly if there is a connection, else along the tree. False: the next rank there is gone.
bool ControlRouter::pass_on(Rank to, ByteView message) {
    return parts_.links.send(to, message) || parts_.links.send(tree_next_hop(rank_, to), message);
}

void ControlRouter::send(Rank to, const ControlMessage& message) {
    Bytes bytes =
        TreeMessage{.topic = Topic::control, .to = to, .from = rank_, .control = message}.encode();
    if (parts_.detours.add_behind_others(to, bytes)) return;
    if (!pass_on(to, bytes)) parts_.detours.add(to, std::move(bytes));
}

void ControlRouter::handle_message(Rank from, ByteView bytes) {
    const auto message = TreeMessage::decode(bytes, size_);
    if (!message)
        return log::warn("rank {}: received a malformed control message from rank {}", rank_, from);
    switch (message->topic) {
        case Topic::bootstrap:
            return parts_.assembly.receive(from, message->body);
        case Topic::control:
            return handle_control(*message);
        case Topic::returned:
            return handle_returned(*message);
        case Topic::loss:
            if (message->lost != rank_) mark_lost(message->lost, message->cause, from);
            return;
        case Topic::farewell:
            return parts_.links.finish(from);
        case Topic::leaving:
            return handle_leaving(from);
    }
}

void ControlRouter::handle_control(const TreeMessage& message) {
    if (message.to != rank_) {
        // Its sender can open a detour, because it knows the addresses of the ranks to which it
        // sends.
        if (!pass_on(message.to, message.encode()))
            pass_on(message.from, as(Topic::returned, message).encode());
        return;
    }
    for (const ControlMessage& answer :
         parts_.clients.handle_message(message.from, message.control, !parts_.leaving))
        send(message.from, answer);
}

void ControlRouter::handle_returned(const TreeMessage& message) {
    if (message.from != rank_) {
        pass_on(message.from, message.encode());
    } else if (message.to != rank_) {
        parts_.detours.add(message.to, as(Topic::control, message).encode());
    }
}

void ControlRouter::handle_leaving(Rank from) {
    parts_.links.send(from, TreeMessage{.topic = Topic::farewell}.encode());
    parts_.links.retire(from);
    const auto lock = parts_.clients.hold();
    losses_.note_leaving(from);
    pass_losses_on(nobody);
}

// A child that connects after the start has failed must hear of it, not take this rank's end for an
// orderly one.
void ControlRouter::link_accepted(Rank peer, ControlLinks::LinkKind kind) {
    if (kind == ControlLinks::LinkKind::branch)
        parts_.assembly.child_connected(peer);
    else if (parts_.leaving)
        parts_.links.send(peer, TreeMessage{.topic = Topic::leaving}.encode());
}

void ControlRouter::link_closed(Rank peer, ControlLinks::LinkKind kind, const std::string& cause) {
    if (parts_.leaving) return;
    const auto lock = parts_.clients.hold();
    if (kind == ControlLinks::LinkKind::branch)
        mark_lost(peer, fmt::format("its process ended ({})", cause));
    else if (losses_.detour_ended(peer))
        parts_.detours.request(peer);
    if (!parts_.links.connected(peer) && ending_.erase(peer) > 0) note_unreachable(peer);
}

// Floods the loss even while this rank leaves: in some communicators no remaining member has a
// connection to the lost rank.
void ControlRouter::mark_lost(Rank peer, const std::string& cause, Rank except) {
    const auto lock = parts_.clients.hold();
    if (!losses_.mark_lost(peer, cause)) return;
    parts_.peer_gone(peer);
    parts_.links.flood(encode_loss(peer, cause), except);
    pass_losses_on(peer);
    if (parts_.clients.empty())
        return parts_.assembly.fail_start(
            {Code::peer_lost, peer, 0, fmt::format("rank {} is gone: {}", peer, cause)});
    parts_.clients.peer_lost(peer, cause);
}

// With the clients' lock held. Before the job is complete, the ends of the tree's connections
// suffice.
void ControlRouter::pass_losses_on(Rank lost) {
    if (parts_.clients.empty() && !parts_.leaving) return;
    const LossTable::ForNext tell = losses_.for_next(lost);
    for (const Rank peer : tell.lost) {
        Bytes message = encode_loss(peer, losses_.lost().at(peer));
        if (!parts_.links.send(tell.next, message))
            parts_.detours.add(tell.next, std::move(message));
    }
}

void ControlRouter::replay_losses(EndpointClient& client) {
    for (auto& [peer, cause] : losses_.lost()) client.peer_lost(peer, cause);
    for (const Rank peer : losses_.unreachable()) client.unreachable(peer);
    pass_losses_on(nobody);
}

bool ControlRouter::is_gone(Rank rank) {
    const auto lock = parts_.clients.hold();
    return losses_.is_gone(rank);
}

// Mostly the peer has left, too. If it is slow, or its host does not answer, it has not ended. If
// no process listens there (peer_lost), its neighbours in the communicators' trees find each other.
void ControlRouter::cut_off(Rank peer, const Error& why) {
    log::info("rank {}: no way to rank {} for control messages any more: {}", rank_, peer,
              why.message);
    const auto lock = parts_.clients.hold();
    parts_.detours.close(peer);
    const bool ended = why.code == Code::peer_lost && why.rank == peer;
    losses_.cut_off(peer);
    pass_losses_on(nobody);
    if (!ended) return;
    // Its goodbye may still be on its way over another link, which ends after it.
    if (parts_.links.connected(peer))
        ending_.insert(peer);
    else
        note_unreachable(peer);
}

// With the clients' lock held.
void ControlRouter::note_unreachable(Rank peer) {
    if (losses_.note_unreachable(peer)) parts_.clients.unreachable(peer);
}

void ControlRouter::stop_waiting_for(Rank rank) {
    const auto lock = parts_.clients.hold();
    losses_.stop_waiting_for(rank);
}

bool ControlRouter::drop_links_not_waited_for() {
    const auto lock = parts_.clients.hold();
    for (const Rank rank : losses_.not_waited_for()) {
        parts_.links.finish(rank);
        parts_.peer_gone(rank);
    }
    return !losses_.not_waited_for().empty();
}

}  // namespace tutti
