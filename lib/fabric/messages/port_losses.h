// The loss of a message port's peer, or of the port, and of the operations that wait for it.
#pragma once

#include "base/log.h"
#include "fabric/messages/port.h"
#include "wait/pace.h"

namespace tutti::fabric {

// A port that waits for a peer and sends nothing to it would not notice its death, so it sends a
// ping in this interval.
inline constexpr int64_t ping_ns = 200'000'000;
inline constexpr uint32_t turns_per_look = 16;

// A disconnect waits that long for the library to give memory back. A dead process's connections
// break at once, and a cancelled receive ends at once.
inline constexpr int let_go_ms = 1000;

template <typename Messenger>
void MessagePort<Messenger>::note_reached(MessagePeer& peer) {
    if (!std::exchange(peer.reached, true)) messenger_.note_reached(peer);
}

template <typename Messenger>
void MessagePort<Messenger>::mark_lost(MessagePeer& peer, const std::string& cause,
                                       Culprit culprit) {
    if (std::exchange(peer.gone, true)) return;
    events_.lost(peer.rank, cause, culprit);
    drop_waiting(peer);
}

// Ends the operations that the library does not have, and asks the library to cancel the receives.
template <typename Messenger>
void MessagePort<Messenger>::drop_waiting(MessagePeer& peer) {
    sends_.forget(peer);
    again_.remove_if([&](StagedMessage* staged) {
        if (staged->peer != &peer) return false;
        sends_.give(*staged);
        return true;
    });
    peer.again = 0;
    control_.remove_if([&](const QueuedControl& control) { return control.peer == &peer; });
    payloads_.outgoing.each([&](PayloadOut& out) {
        if (out.peer == &peer && out.state != PayloadOut::State::sending)
            finish(out, Code::peer_lost);
    });
    payloads_.incoming.each([&](PayloadIn& in) {
        if (in.peer == &peer && in.state == PayloadIn::State::fetching && broken_.empty())
            messenger_.cancel(in);
    });
}

template <typename Messenger>
void MessagePort<Messenger>::check_peers() {
    if (++turns_ % turns_per_look != 0 || !payloads_.any()) return;
    const int64_t now = now_ns();
    if (now - looked_ns_ < ping_ns) return;
    looked_ns_ = now;
    for (MessagePeer* peer : peers_.by_rank())
        if (peer && peer->reached && !peer->gone && payloads_.wait_for(*peer))
            try_send_control({peer, peers_.prefix_to(*peer, Prefix::Kind::ping, 0, 0)});
}

template <typename Messenger>
Result<> MessagePort<Messenger>::connect(Rank rank, ByteView address) {
    if (!broken_.empty())
        return fail_rank(Code::system, rank, "{}", broken_)
            .advice("read the log of this process, then make a new communicator");
    if (!peers_.has_rank(rank))
        return fail_rank(Code::invalid, rank, "{}: there is no rank {}", messenger_.name(), rank)
            .advice("name a rank of the job");
    ByteReader in(address);
    const auto port = in.get<uint64_t>();
    TUTTI_ASSIGN(const auto theirs, messenger_.parse(rank, in));
    MessagePeer& peer = peers_.find_or_add(rank, port);
    TUTTI_TRY(messenger_.connect(peer, theirs));
    peer.connected = true;
    return {};
}

template <typename Messenger>
void MessagePort<Messenger>::disconnect(Rank rank) {
    MessagePeer* const peer = peers_.find(rank);
    if (!peer) return;
    peer->gone = true;
    drop_waiting(*peer);
    Pace pace(Deadline::after_ms(let_go_ms));
    while (payloads_.wait_for(*peer))
        if (!take_completions() && !pace.pause())
            return fail_port(fmt::format("it did not release a message of rank {} within {} ms",
                                         peer->rank, let_go_ms));
}

// Called if the library holds memory of the caller's that it must no longer access, because only
// closing the endpoint makes sure of that; or if the library accepts no receives. The port is
// closed for all peers, and no present peer is to blame.
template <typename Messenger>
void MessagePort<Messenger>::fail_port(std::string_view cause) {
    broken_ = fmt::format("{}: closed: {}", messenger_.name(), cause);
    log::warn(fail(Code::system, "{}", broken_)
                  .advice("make a new communicator, or set TUTTI_TRANSPORT=tcp"));
    messenger_.close();
    messenger_.silence();
    again_.clear();
    control_.clear();
    payloads_.granted.clear();
    sends_.forget_all();
    payloads_.outgoing.each([&](PayloadOut& out) { finish(out, Code::peer_lost); });
    payloads_.incoming.each([&](PayloadIn& in) {
        if (in.state == PayloadIn::State::fetching) fetched(in, Code::peer_lost);
    });
    for (MessagePeer* peer : std::vector<MessagePeer*>(peers_.by_rank()))
        if (peer && peer->connected) mark_lost(*peer, broken_, Culprit::own);
}

}  // namespace tutti::fabric
