#include <rdma/fi_errno.h>

#include <cstring>

#include "base/log.h"
#include "transports/ofi/port.h"

namespace tutti::ofi {

using fabric::Progress;

void OfiPort::post_more(ReceiveBuffers& buffers) {
    if (const auto posted = buffers.post(); !posted) fail_port(posted.error().message);
}

void OfiPort::arrived(BounceBuffer& bounce, std::size_t bytes) {
    ReceiveBuffers& buffers = *bounce.of;
    buffers.completed();
    if (!handle_message(bounce, bytes)) buffers.give(bounce);
    post_more(buffers);
}

// True: the engine holds the buffer.
bool OfiPort::handle_message(BounceBuffer& bounce, std::size_t bytes) {
    Prefix prefix;
    if (bytes < sizeof prefix) return false;
    std::memcpy(&prefix, bounce.data, sizeof prefix);
    OfiPeer* const peer =
        plausible(prefix, bytes, limits_.eager_bytes) ? peers_.sender_of(prefix) : nullptr;
    if (!peer) {
        log::debug("libfabric ({}): dropped a stranger's message of {} bytes", objects_.provider(),
                   bytes);
        return false;
    }
    switch (prefix.kind) {
        case Kind::eager:
            return deliver_eager(bounce, prefix);
        case Kind::announce:
            deliver_announced(*peer, bounce, prefix, bytes);
            break;
        case Kind::grant:
        case Kind::drop:
            granted(*peer, prefix);
            break;
        case Kind::ping:
            break;
    }
    return false;
}

bool OfiPort::deliver_eager(BounceBuffer& bounce, const Prefix& prefix) {
    return events_.arrived({.header = bounce.data + sizeof prefix,
                            .data = prefix.bytes > 0 ? bounce.data + envelope_bytes : nullptr,
                            .bytes = prefix.bytes,
                            .hold = static_cast<OpContext*>(&bounce)});
}

void OfiPort::deliver_announced(OfiPeer& peer, const BounceBuffer& bounce, const Prefix& prefix,
                                std::size_t bytes) {
    const ByteView where(bounce.data + envelope_bytes, bytes - envelope_bytes);
    if (const auto known = peers_.take_address(peer, where); !known)
        return mark_lost(peer, known.error().message,
                         known.error().code == Code::no_memory ? Culprit::own : Culprit::peer);
    PayloadIn& in = payloads_.incoming.take();
    in.peer = &peer;
    in.theirs = prefix.number;
    in.bytes = prefix.bytes;
    OpContext* const hold = &in;
    const bool kept = events_.arrived({.header = bounce.data + sizeof prefix,
                                       .data = nullptr,
                                       .bytes = prefix.bytes,
                                       .hold = hold});
    if (!kept) release(hold);
}

Progress OfiPort::fetch(void* hold, std::byte* where, std::size_t bytes, void* context) {
    auto& in = static_cast<PayloadIn&>(*static_cast<OpContext*>(hold));
    if (in.peer->gone || !broken_.empty() || bytes != in.bytes) return Progress::failed;
    auto registered = memory_.use(where, bytes);
    if (!registered) {
        mark_lost(*in.peer, registered.error().message, Culprit::own);
        return Progress::failed;
    }
    const ssize_t code =
        fi_trecv(objects_.endpoint.get(), where, bytes, descriptor_of(registered->handle()),
                 FI_ADDR_UNSPEC, payload_tag(in), 0, static_cast<OpContext*>(&in));
    if (code == -FI_EAGAIN) return Progress::busy;
    if (code != 0) {
        // From whom it is to come, libfabric does not know.
        mark_lost(*in.peer,
                  fmt::format("libfabric ({}): receiving {} bytes: {}", objects_.provider(), bytes,
                              reason(code)),
                  Culprit::own);
        return Progress::failed;
    }
    in.registered = std::move(*registered);
    in.context = context;
    in.state = PayloadIn::State::fetching;
    send_control(*in.peer, Kind::grant, in.theirs, payload_tag(in));
    return Progress::pending;
}

void OfiPort::fetched(PayloadIn& in, Code code) {
    in.state = PayloadIn::State::ended;
    in.registered = {};
    events_.fetched(in.context, code);
}

void OfiPort::release(void* hold) {
    auto* const operation = static_cast<OpContext*>(hold);
    if (operation->kind == OpContext::Kind::receive) {
        auto& bounce = static_cast<BounceBuffer&>(*operation);
        bounce.of->give(bounce);
        return;
    }
    auto& in = static_cast<PayloadIn&>(*operation);
    if (in.state == PayloadIn::State::announced) send_control(*in.peer, Kind::drop, in.theirs, 0);
    payloads_.incoming.give(in);
}

}  // namespace tutti::ofi
