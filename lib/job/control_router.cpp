#include "job/control_router.h"

#include <fmt/format.h>

#include <utility>

#include "base/clock.h"
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

Bytes encode_accusation(Accusation one, const std::string& cause) {
    return TreeMessage{
        .topic = Topic::accusation, .from = one.accuser, .lost = one.accused, .cause = cause}
        .encode();
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
        return log::warn(
            fail_rank(Code::system, from, "received a malformed control message from rank {}", from)
                .advice("install the same version of tutti on all hosts")
                .on(rank_));
    parts_.heartbeat.note_message(from, now_ns());
    switch (message->topic) {
        case Topic::bootstrap:
            return parts_.assembly.receive(from, message->body);
        case Topic::control:
            return handle_control(*message);
        case Topic::returned:
            return handle_returned(*message);
        case Topic::loss:
            if (message->lost != rank_) spread_loss(message->lost, message->cause, from);
            return;
        case Topic::accusation: {
            const auto lock = parts_.clients.hold();
            return spread_accusation({message->from, message->lost}, message->cause, from);
        }
        case Topic::beat:
            begin_beating();
            return parts_.heartbeat.note_beat(from, now_ns());
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
    parts_.heartbeat.forget(from);
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
    link_dialled(peer);
}

// Later messages over the new link may build on an accusation that went out before.
void ControlRouter::link_dialled(Rank peer) {
    if (!parts_.heartbeat.is_beating()) return;
    parts_.links.send(peer, TreeMessage{.topic = Topic::beat}.encode());
    const auto lock = parts_.clients.hold();
    for (const auto& [one, cause] : losses_.accusations())
        parts_.links.send(peer, encode_accusation(one, cause));
    if (losses_.is_accused(peer)) parts_.links.retire(peer);
}

void ControlRouter::link_closed(Rank peer, ControlLinks::LinkKind kind, const std::string& cause) {
    if (!parts_.links.connected(peer)) parts_.heartbeat.forget(peer);
    if (parts_.leaving) return;
    const auto lock = parts_.clients.hold();
    if (kind == ControlLinks::LinkKind::branch)
        mark_lost(peer, fmt::format("its process ended ({})", cause));
    else if (losses_.detour_ended(peer))
        parts_.detours.request(peer);
    if (!parts_.links.connected(peer) && ending_.erase(peer) > 0) note_unreachable(peer);
}

void ControlRouter::begin_beating() {
    if (!parts_.heartbeat.begin(now_ns())) return;
    pulse(false);
}

void ControlRouter::pulse(bool may_begin) {
    if (may_begin) parts_.heartbeat.begin(now_ns());
    const Heartbeat::Pulse pulse = parts_.heartbeat.pulse(now_ns());
    if (pulse.beat) parts_.links.flood(TreeMessage{.topic = Topic::beat}.encode(), nobody);
    for (const Heartbeat::Silence& one : pulse.silent) {
        if (parts_.leaving) break;
        const auto lock = parts_.clients.hold();
        spread_accusation({rank_, one.peer},
                          fmt::format("it has not answered rank {} for {} ms (TUTTI_HEARTBEAT_MS "
                                      "is {})",
                                      rank_, one.silent_ms, parts_.heartbeat.period_ms()),
                          nobody);
    }
    if (const int64_t due_ns = parts_.heartbeat.due_ns(); due_ns != Heartbeat::never_ns)
        parts_.arm_heartbeat(due_ns);
}

// If this process has not run for a while, its peers may have closed their connections meanwhile
// because they took it for lost. So it must not take them for dead. Before the job is complete, any
// loss ends its start.
void ControlRouter::mark_lost(Rank peer, const std::string& cause) {
    const auto lock = parts_.clients.hold();
    if (!parts_.clients.empty() && parts_.heartbeat.doubts(now_ns()))
        spread_accusation({rank_, peer}, cause, nobody);
    else
        spread_loss(peer, cause, nobody);
}

// A rank that is accused learns it over the links that it has, and does nothing for the job any
// more. It may be alive: the others forward nothing through it.
void ControlRouter::spread_accusation(Accusation one, const std::string& cause, Rank except) {
    if (!losses_.accuse(one, cause)) return;
    log::info("rank {}: rank {} counts as lost: {}", rank_, one.accused, cause);
    parts_.links.flood(encode_accusation(one, cause), except);
    pass_losses_on(one.accused);
    if (one.accused == rank_)
        return parts_.clients.peer_lost(
            rank_, fmt::format("the other ranks have excluded this one: {}", cause));
    parts_.links.retire(one.accused);
    parts_.peer_gone(one.accused);
    parts_.clients.peer_lost(one.accused, cause, one.accuser);
}

// Floods the loss even while this rank leaves: in some communicators no remaining member has a
// connection to the lost rank.
void ControlRouter::spread_loss(Rank peer, const std::string& cause, Rank except) {
    const auto lock = parts_.clients.hold();
    if (!losses_.mark_lost(peer, cause)) return;
    // The news may come before the end of the connection. A message that this rank sent to the lost
    // one, to be passed on, would be lost as well.
    parts_.links.retire(peer);
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
    const auto send = [&](Bytes message) {
        if (!parts_.links.send(tell.next, message))
            parts_.detours.add(tell.next, std::move(message));
    };
    for (const Rank peer : tell.lost) {
        if (!losses_.is_accused(peer)) send(encode_loss(peer, losses_.lost().at(peer)));
        for (const auto& [one, cause] : losses_.accusations())
            if (one.accused == peer) send(encode_accusation(one, cause));
    }
}

void ControlRouter::replay_losses(EndpointClient& client) {
    for (auto& [one, cause] : losses_.accusations())
        client.peer_lost(one.accused, cause, one.accuser);
    for (auto& [peer, cause] : losses_.lost())
        if (!losses_.is_accused(peer)) client.peer_lost(peer, cause, nobody);
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
    const bool ended = why.code == Code::peer_lost && why.rank == peer;
    const bool is_silent = why.code == Code::timeout && why.rank == peer && !parts_.leaving &&
                           parts_.heartbeat.is_beating();
    // If this process did not run meanwhile, the time says nothing: the detour is tried again.
    if (is_silent && parts_.heartbeat.doubts(now_ns())) return;
    parts_.detours.close(peer);
    losses_.cut_off(peer);
    if (is_silent || (ended && parts_.heartbeat.doubts(now_ns())))
        spread_accusation({rank_, peer}, why.message, nobody);
    pass_losses_on(nobody);
    if (!ended || losses_.is_accused(peer)) return;
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
        if (rank == rank_) continue;
        parts_.links.finish(rank);
        parts_.peer_gone(rank);
    }
    return !losses_.not_waited_for().empty();
}

}  // namespace tutti
