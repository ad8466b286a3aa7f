// A message port's outgoing direction.
#pragma once

#include <cstring>

#include "fabric/messages/port.h"

namespace tutti::fabric {

// Libraries connect in the background, accept no sends before that, and retry for ever: also after
// a process that was reached has died. If that takes longer than this time, the peer counts as
// lost.
inline constexpr int64_t reconnect_ns = 500'000'000;

// So many messages may fail before the peer is reached. A dead process accepts no connection on
// which a message could fail.
inline constexpr unsigned most_failed = 8;

template <typename Messenger>
Progress MessagePort<Messenger>::post(StagedMessage& staged) {
    const int code = messenger_.send(staged);
    MessagePeer& peer = *staged.peer;
    if (code == 0) {
        sends_.leaves(peer);
        return Progress::done;
    }
    sends_.give(staged);
    return refused(peer, code, staged.bytes);
}

// If two ranks connect to each other at the same time, libfabric 1.17's provider net may close the
// connection that it has just made, in favour of the other one. A message on it fails then,
// although the peer lives and has received nothing. Only the first messages to a peer can meet
// this.
template <typename Messenger>
bool MessagePort<Messenger>::send_later(StagedMessage& staged, int code) {
    MessagePeer& peer = *staged.peer;
    if (code == 0 || peer.reached || staged.second || !can_send(&peer)) return false;
    if (++peer.failed > most_failed) return false;
    again_.push(&staged);
    ++peer.again;
    return true;
}

// False: there is no room yet.
template <typename Messenger>
bool MessagePort<Messenger>::send_again(StagedMessage& staged) {
    const int code = messenger_.send(staged);
    if (messenger_.is_full(code)) return false;
    MessagePeer& peer = *staged.peer;
    --peer.again;
    if (code == 0) {
        sends_.leaves(peer);
    } else {
        sends_.give(staged);
        refused(peer, code, staged.bytes);
    }
    return true;
}

// The library refused an operation: busy if it may accept it later, else failed.
template <typename Messenger>
Progress MessagePort<Messenger>::refused(MessagePeer& peer, int code, std::size_t bytes) {
    if (!messenger_.is_full(code)) {
        mark_lost(peer, messenger_.failure("sending", bytes, code),
                  messenger_.is_own(code) ? Culprit::own : Culprit::peer);
        return Progress::failed;
    }
    // The library may lack room here or at the peer, or the peer was not reached yet and may still
    // start.
    if (!peer.reached || sends_.may_be_full(peer)) {
        peer.refused_since_ns = 0;
        return Progress::busy;
    }
    const int64_t now = now_ns();
    if (peer.refused_since_ns == 0) peer.refused_since_ns = now;
    if (now - peer.refused_since_ns < reconnect_ns) return Progress::busy;
    mark_lost(peer, messenger_.name() + ": the connection broke, and the peer accepts no new one");
    return Progress::failed;
}

template <typename Messenger>
Progress MessagePort<Messenger>::send(Rank rank, const std::byte* header, const std::byte* data,
                                      std::size_t bytes, void* context) {
    MessagePeer* const peer = peers_.find(rank);
    if (!can_send(peer)) return Progress::failed;
    const MessengerLimits& limits = messenger_.limits();
    if (bytes > limits.port.eager_bytes) return announce(*peer, header, data, bytes, context);
    if (bytes <= limits.port.copied_bytes || !limits.two_pieces)
        return send_copied(*peer, header, data, bytes, false);
    StagedMessage* const staged =
        take_staged(*peer, peers_.prefix_to(*peer, Prefix::Kind::eager, 0, bytes), header);
    return staged ? send_in_place(*staged, data, bytes, context) : Progress::busy;
}

template <typename Messenger>
Progress MessagePort<Messenger>::send_crossing(Rank rank, const std::byte* header,
                                               const std::byte* data, std::size_t bytes,
                                               unsigned way) {
    MessagePeer* const peer = peers_.find(rank);
    const MessengerLimits& limits = messenger_.limits();
    const bool second = way == 1 && bytes <= limits.port.copied_bytes && limits.second;
    if (!second || !peer || peer->second == no_address)
        return send(rank, header, data, bytes, nullptr);
    if (!can_send(peer)) return Progress::failed;
    return send_copied(*peer, header, data, bytes, true);
}

/// A send buffer that begins with the prefix and the header. nullptr: no buffer is free now.
template <typename Messenger>
StagedMessage* MessagePort<Messenger>::take_staged(MessagePeer& peer, const Prefix& prefix,
                                                   const std::byte* header) {
    // A message must not overtake those that are sent again.
    StagedMessage* const staged = peer.again == 0 ? sends_.take(peer) : nullptr;
    if (!staged) return nullptr;
    std::memcpy(staged->data, &prefix, sizeof prefix);
    std::memcpy(staged->data + sizeof prefix, header, header_bytes);
    staged->bytes = envelope_bytes;
    return staged;
}

template <typename Messenger>
Progress MessagePort<Messenger>::send_copied(MessagePeer& peer, const std::byte* header,
                                             const std::byte* data, std::size_t bytes,
                                             bool second) {
    StagedMessage* const staged =
        take_staged(peer, peers_.prefix_to(peer, Prefix::Kind::eager, 0, bytes), header);
    if (!staged) return Progress::busy;
    if (bytes > 0) std::memcpy(staged->data + envelope_bytes, data, bytes);
    staged->bytes += bytes;
    staged->second = second;
    // Injects only to a peer that has been reached. If the library refuses, post() sends the
    // message and interprets its error.
    const bool injects = staged->bytes <= messenger_.limits().injected_bytes && peer.reached;
    if (!injects || messenger_.inject(*staged) != 0) return post(*staged);
    peer.refused_since_ns = 0;
    sends_.give(*staged);
    return Progress::done;
}

/// A payload that stays in the caller's memory, after that message. nullptr: the memory cannot be
/// registered; the peer is lost for that.
template <typename Messenger>
PayloadOut* MessagePort<Messenger>::borrow(StagedMessage& staged, const std::byte* data,
                                           std::size_t bytes, void* context) {
    MessagePeer& peer = *staged.peer;
    auto registered = messenger_.library_memory().use(data, bytes);
    if (!registered) {
        sends_.give(staged);
        mark_lost(peer, registered.error().message, Culprit::own);
        return nullptr;
    }
    PayloadOut& out = payloads_.outgoing.take();
    // In this state the loss of the peer does not end the payload, until the library has accepted
    // or refused it.
    out.state = PayloadOut::State::sending;
    out.peer = &peer;
    out.data = data;
    out.bytes = bytes;
    out.context = context;
    out.registered = std::move(*registered);
    return &out;
}

// Sends the header from a send buffer, and the payload from the caller's memory.
template <typename Messenger>
Progress MessagePort<Messenger>::send_in_place(StagedMessage& staged, const std::byte* data,
                                               std::size_t bytes, void* context) {
    PayloadOut* const out = borrow(staged, data, bytes, context);
    if (!out) return Progress::failed;
    MessagePeer& peer = *staged.peer;
    out->staged = &staged;
    if (const int code = messenger_.send_in_place(*out); code != 0) {
        payloads_.outgoing.give(*out);
        sends_.give(staged);
        return refused(peer, code, bytes);
    }
    sends_.leaves(peer);
    return Progress::pending;
}

template <typename Messenger>
Progress MessagePort<Messenger>::announce(MessagePeer& peer, const std::byte* header,
                                          const std::byte* data, std::size_t bytes, void* context) {
    StagedMessage* const staged = take_staged(peer, {}, header);
    if (!staged) return Progress::busy;
    PayloadOut* const out = borrow(*staged, data, bytes, context);
    if (!out) return Progress::failed;
    const Prefix prefix = peers_.prefix_to(peer, Prefix::Kind::announce, out->number, bytes);
    std::memcpy(staged->data, &prefix, sizeof prefix);
    const ByteView address = messenger_.address();
    std::memcpy(staged->data + envelope_bytes, address.data(), address.size());
    staged->bytes += address.size();
    const Progress posted = post(*staged);
    if (posted != Progress::done) {
        payloads_.outgoing.give(*out);
        return posted;
    }
    out->state = PayloadOut::State::announced;
    return Progress::pending;
}

// ---- grants ----------------------------------------------------------------------------------

template <typename Messenger>
void MessagePort<Messenger>::send_control(MessagePeer& peer, Prefix::Kind kind, uint64_t number,
                                          uint64_t bytes) {
    const QueuedControl control{&peer, peers_.prefix_to(peer, kind, number, bytes)};
    if (!control_.empty() || !try_send_control(control)) control_.push(control);
}

// False: there is no room yet.
template <typename Messenger>
bool MessagePort<Messenger>::try_send_control(const QueuedControl& control) {
    if (control.peer->gone || !broken_.empty()) return true;
    StagedMessage* const staged = sends_.take(*control.peer);
    if (!staged) return false;
    std::memcpy(staged->data, &control.prefix, sizeof control.prefix);
    staged->bytes = sizeof control.prefix;
    return post(*staged) != Progress::busy;
}

// Tries each once: a message that finds no room goes to the end of the queue, behind other peers'.
template <typename Messenger>
bool MessagePort<Messenger>::retry() {
    bool moved = false;
    const auto note = [&](bool sent) {
        moved |= sent;
        return sent;
    };
    again_.remove_if([&](StagedMessage* one) { return note(send_again(*one)); });
    control_.remove_if([&](const QueuedControl& one) { return note(try_send_control(one)); });
    payloads_.granted.remove_if([&](uint64_t number) {
        PayloadOut* const out = payloads_.outgoing.find(number);
        return note(!out || try_send_payload(*out));
    });
    for (ReceiveBuffers* buffers : {&first_, &second_})
        if (buffers->is_behind() && buffers->has_free()) post_more(*buffers);
    return moved;
}

template <typename Messenger>
void MessagePort<Messenger>::granted(MessagePeer& peer, const Prefix& prefix) {
    PayloadOut* const out = payloads_.outgoing.find(prefix.number);
    if (!out || out->peer != &peer || out->state != PayloadOut::State::announced) return;
    if (prefix.kind == Prefix::Kind::drop) return finish(*out, Code::ok);
    out->tag = prefix.bytes;
    out->state = PayloadOut::State::granted;
    if (!try_send_payload(*out)) payloads_.granted.push(prefix.number);
}

// False: there is no room yet.
template <typename Messenger>
bool MessagePort<Messenger>::try_send_payload(PayloadOut& out) {
    if (const int code = messenger_.send_payload(out); code != 0)
        return refused(*out.peer, code, out.bytes) != Progress::busy;
    out.state = PayloadOut::State::sending;
    sends_.leaves(*out.peer);
    return true;
}

/// Moves only payloads that the peer has not granted or that wait for room: the library has the
/// others.
template <typename Messenger>
bool MessagePort<Messenger>::move(void* context, std::byte* where) {
    bool moved = false;
    payloads_.outgoing.each([&](PayloadOut& out) {
        if (out.context != context || out.state == PayloadOut::State::sending) return;
        auto registered = messenger_.library_memory().use(where, out.bytes);
        if (!registered) return;
        out.data = where;
        out.registered = std::move(*registered);
        moved = true;
    });
    return moved;
}

template <typename Messenger>
void MessagePort<Messenger>::finish(PayloadOut& out, Code code) {
    void* const context = out.context;
    if (out.staged) sends_.give(*out.staged);
    payloads_.outgoing.give(out);
    events_.sent(context, code);
}

}  // namespace tutti::fabric
