#include <rdma/fi_errno.h>
#include <sys/uio.h>

#include <array>
#include <cstring>

#include "transports/ofi/port.h"

namespace tutti::ofi {
namespace {

using fabric::Progress;

// Providers connect in the background, take nothing until they have, and try for ever: also again,
// when a process that was reached has died. Then they do not connect within this time.
constexpr int64_t reconnect_ns = 500'000'000;

ssize_t hand_over(const Objects& objects, Staged& staged) {
    fid_ep* const endpoint = staged.second ? objects.second.get() : objects.endpoint.get();
    return fi_send(endpoint, staged.data, staged.bytes, staged.descriptor,
                   staged.second ? staged.peer->second : staged.peer->address,
                   static_cast<OpContext*>(&staged));
}

}  // namespace

Progress OfiPort::post(Staged& staged) {
    ssize_t code = hand_over(objects_, staged);
    // The first way will do until that connection is made, or has room.
    if (code == -FI_EAGAIN && staged.second) {
        staged.second = false;
        code = hand_over(objects_, staged);
    }
    if (code == 0) {
        sends_.leaves(*staged.peer);
        return Progress::done;
    }
    OfiPeer& peer = *staged.peer;
    sends_.give(staged);
    return refused(peer, code, "sending", staged.bytes);
}

// What it means that libfabric did not take something.
Progress OfiPort::refused(OfiPeer& peer, long code, std::string_view what, std::size_t bytes) {
    if (code != -FI_EAGAIN) {
        mark_lost(peer,
                  fmt::format("libfabric ({}): {} {} bytes: {}", objects_.provider(), what, bytes,
                              reason(code)),
                  is_own(code) ? Culprit::own : Culprit::peer);
        return Progress::failed;
    }
    // There may be no room, here or there; or it was never there, and may yet come.
    if (!peer.reached || sends_.may_be_full(peer)) {
        peer.refused_since_ns = 0;
        return Progress::busy;
    }
    const int64_t now = now_ns();
    if (peer.refused_since_ns == 0) peer.refused_since_ns = now;
    if (now - peer.refused_since_ns < reconnect_ns) return Progress::busy;
    mark_lost(peer, fmt::format("libfabric ({}): the connection broke, and it takes no other",
                                objects_.provider()));
    return Progress::failed;
}

Progress OfiPort::send(Rank rank, const std::byte* header, const std::byte* data, std::size_t bytes,
                       void* context) {
    OfiPeer* const peer = peers_.find(rank);
    if (!peer || peer->gone || !peer->connected || !broken_.empty()) return Progress::failed;
    if (bytes > limits_.eager_bytes) return announce(*peer, header, data, bytes, context);
    if (bytes <= copied_bytes || !two_pieces_)
        return send_copied(*peer, header, data, bytes, false);
    Staged* const staged = take_eager(*peer, header, bytes);
    return staged ? send_in_place(*staged, data, bytes, context) : Progress::busy;
}

Progress OfiPort::send_crossing(Rank rank, const std::byte* header, const std::byte* data,
                                std::size_t bytes, unsigned way) {
    OfiPeer* const peer = peers_.find(rank);
    const bool second = way == 1 && bytes <= limits_.copied_bytes && objects_.second;
    if (!second || !peer || peer->second == FI_ADDR_NOTAVAIL)
        return send(rank, header, data, bytes, nullptr);
    if (peer->gone || !peer->connected || !broken_.empty()) return Progress::failed;
    return send_copied(*peer, header, data, bytes, true);
}

/// With what stands in front of a payload that comes unasked.
Staged* OfiPort::take_eager(OfiPeer& peer, const std::byte* header, std::size_t bytes) {
    Staged* const staged = sends_.take(peer);
    if (!staged) return nullptr;
    const Prefix prefix = peers_.prefix_to(peer, Kind::eager, 0, bytes);
    std::memcpy(staged->data, &prefix, sizeof prefix);
    std::memcpy(staged->data + sizeof prefix, header, fabric::header_bytes);
    staged->bytes = envelope_bytes;
    return staged;
}

Progress OfiPort::send_copied(OfiPeer& peer, const std::byte* header, const std::byte* data,
                              std::size_t bytes, bool second) {
    Staged* const staged = take_eager(peer, header, bytes);
    if (!staged) return Progress::busy;
    if (bytes > 0) std::memcpy(staged->data + envelope_bytes, data, bytes);
    staged->bytes += bytes;
    staged->second = second;
    if (staged->bytes <= injected_bytes_ && peer.reached) return inject(*staged);
    return post(*staged);
}

/// To a peer that has been reached. What is refused is sent as all else, which says what that
/// means.
Progress OfiPort::inject(Staged& staged) {
    OfiPeer& peer = *staged.peer;
    if (fi_inject(objects_.endpoint.get(), staged.data, staged.bytes, peer.address) != 0)
        return post(staged);
    peer.refused_since_ns = 0;
    sends_.give(staged);
    return Progress::done;
}

// The header from our buffer, the payload from the caller's.
Progress OfiPort::send_in_place(Staged& staged, const std::byte* data, std::size_t bytes,
                                void* context) {
    OfiPeer& peer = *staged.peer;
    auto registered = memory_.use(data, bytes);
    if (!registered) {
        sends_.give(staged);
        mark_lost(peer, registered.error().message, Culprit::own);
        return Progress::failed;
    }
    PayloadOut& out = payloads_.outgoing.take();
    const std::array pieces = {iovec{staged.data, staged.bytes},
                               iovec{const_cast<std::byte*>(data), bytes}};
    std::array<void*, 2> descriptors = {staged.descriptor, descriptor_of(registered->handle())};
    const ssize_t code = fi_sendv(objects_.endpoint.get(), pieces.data(), descriptors.data(), 2,
                                  peer.address, static_cast<OpContext*>(&out));
    if (code != 0) {
        payloads_.outgoing.give(out);
        sends_.give(staged);
        return refused(peer, code, "sending", bytes);
    }
    sends_.leaves(peer);
    out.state = PayloadOut::State::sending;
    out.peer = &peer;
    out.bytes = bytes;
    out.context = context;
    out.registered = std::move(*registered);
    out.staged = &staged;
    return Progress::pending;
}

Progress OfiPort::announce(OfiPeer& peer, const std::byte* header, const std::byte* data,
                           std::size_t bytes, void* context) {
    Staged* const staged = sends_.take(peer);
    if (!staged) return Progress::busy;
    auto registered = memory_.use(data, bytes);
    if (!registered) {
        sends_.give(*staged);
        mark_lost(peer, registered.error().message, Culprit::own);
        return Progress::failed;
    }
    PayloadOut& out = payloads_.outgoing.take();
    const Prefix prefix = peers_.prefix_to(peer, Kind::announce, out.number, bytes);
    std::memcpy(staged->data, &prefix, sizeof prefix);
    std::memcpy(staged->data + sizeof prefix, header, fabric::header_bytes);
    std::memcpy(staged->data + envelope_bytes, objects_.address.data(), objects_.address.size());
    staged->bytes = envelope_bytes + objects_.address.size();
    // Before it is posted: nothing that happens in there finds a half-made one.
    out.data = data;
    out.bytes = bytes;
    out.context = context;
    out.registered = std::move(*registered);
    const Progress posted = post(*staged);
    if (posted != Progress::done) {
        payloads_.outgoing.give(out);
        return posted;
    }
    out.peer = &peer;
    return Progress::pending;
}

// ---- grants ----------------------------------------------------------------------------------

void OfiPort::send_control(OfiPeer& peer, Kind kind, uint64_t number, uint64_t bytes) {
    const QueuedControl control{&peer, peers_.prefix_to(peer, kind, number, bytes)};
    if (!control_.empty() || !try_send_control(control)) control_.push(control);
}

// False: not yet.
bool OfiPort::try_send_control(const QueuedControl& control) {
    if (control.peer->gone || !broken_.empty()) return true;
    Staged* const staged = sends_.take(*control.peer);
    if (!staged) return false;
    std::memcpy(staged->data, &control.prefix, sizeof control.prefix);
    staged->bytes = sizeof control.prefix;
    return post(*staged) != Progress::busy;
}

// Each once: what finds no room goes to the end, behind other peers'.
bool OfiPort::retry() {
    bool moved = false;
    for (std::size_t left = control_.size(); left > 0 && !control_.empty(); --left) {
        const QueuedControl control = control_.pop();
        if (try_send_control(control))
            moved = true;
        else
            control_.push(control);
    }
    for (std::size_t left = granted_.size(); left > 0 && !granted_.empty(); --left) {
        const uint64_t number = granted_.pop();
        PayloadOut* const out = payloads_.outgoing.find(number);
        if (!out || send_payload(*out) == Left::yes)
            moved = true;
        else
            granted_.push(number);
    }
    for (ReceiveBuffers* buffers : {&first_, &second_})
        if (buffers->is_behind() && buffers->has_free()) post_more(*buffers);
    return moved;
}

void OfiPort::granted(OfiPeer& peer, const Prefix& prefix) {
    PayloadOut* const out = payloads_.outgoing.find(prefix.number);
    if (!out || out->peer != &peer || out->state != PayloadOut::State::announced) return;
    if (prefix.kind == Kind::drop) return finish(*out, Code::ok);
    out->tag = prefix.bytes;
    out->state = PayloadOut::State::granted;
    if (send_payload(*out) == Left::no_room) granted_.push(prefix.number);
}

OfiPort::Left OfiPort::send_payload(PayloadOut& out) {
    const ssize_t code = fi_tsend(objects_.endpoint.get(), out.data, out.bytes,
                                  descriptor_of(out.registered.handle()), out.peer->address,
                                  out.tag, static_cast<OpContext*>(&out));
    if (code == 0) {
        out.state = PayloadOut::State::sending;
        sends_.leaves(*out.peer);
        return Left::yes;
    }
    return refused(*out.peer, code, "sending", out.bytes) == Progress::busy ? Left::no_room
                                                                            : Left::yes;
}

/// Only what nobody has asked for yet: the rest libfabric has.
bool OfiPort::move(void* context, std::byte* where) {
    bool moved = false;
    payloads_.outgoing.each([&](PayloadOut& out) {
        if (out.context != context || out.state == PayloadOut::State::sending) return;
        auto registered = memory_.use(where, out.bytes);
        if (!registered) return;
        out.data = where;
        out.registered = std::move(*registered);
        moved = true;
    });
    return moved;
}

void OfiPort::finish(PayloadOut& out, Code code) {
    void* const context = out.context;
    if (out.staged) {
        if (code == Code::ok) peers_.reach(*out.peer, limits_.sockets);
        sends_.give(*out.staged);
    }
    payloads_.outgoing.give(out);
    events_.sent(context, code);
}

}  // namespace tutti::ofi
