#include <rdma/fi_errno.h>

#include <cstring>

#include "base/log.h"
#include "transports/ofi/port.h"

namespace tutti::ofi {

using fabric::Progress;

/// An error: the endpoint takes no receives at all, and nothing would ever be heard.
Result<> OfiPort::post_bounces(Receives& receives) {
    while (receives.posted < receives.goal && broken_.empty()) {
        if (receives.resting.empty()) {
            // All are held: more memory, so that nobody waits for who does not read.
            if (auto grown = grow(receives); !grown) {
                if (receives.posted == 0) return grown;
                log::warn("{}", grown.error().message);
                return {};
            }
        }
        Bounce& bounce = *receives.resting.back();
        const ssize_t code =
            fi_recv(receives.endpoint, bounce.data, receives.bytes, bounce.descriptor,
                    FI_ADDR_UNSPEC, static_cast<Operation*>(&bounce));
        if (code == -FI_EAGAIN) return {};
        if (code != 0 && receives.posted == 0)
            return fail(Code::system, "libfabric ({}): posting a receive: {}", objects_.provider(),
                        reason(code));
        if (code != 0) {
            log::warn("libfabric ({}): posting a receive: {}", objects_.provider(), reason(code));
            return {};
        }
        receives.resting.pop_back();
        ++receives.posted;
    }
    return {};
}

void OfiPort::post_more(Receives& receives) {
    if (const auto posted = post_bounces(receives); !posted) give_up(posted.error().message);
}

void OfiPort::arrived(Bounce& bounce, std::size_t bytes) {
    --bounce.of->posted;
    if (!take_message(bounce, bytes)) bounce.of->resting.push_back(&bounce);
    post_more(*bounce.of);
}

// True: the engine holds the buffer.
bool OfiPort::take_message(Bounce& bounce, std::size_t bytes) {
    Prefix prefix;
    if (bytes < sizeof prefix) return false;
    std::memcpy(&prefix, bounce.data, sizeof prefix);
    Peer* const peer = plausible(prefix, bytes, limits_.eager_bytes) ? sender_of(prefix) : nullptr;
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

bool OfiPort::deliver_eager(Bounce& bounce, const Prefix& prefix) {
    return events_->arrived({.header = bounce.data + sizeof prefix,
                             .data = prefix.bytes > 0 ? bounce.data + envelope_bytes : nullptr,
                             .bytes = prefix.bytes,
                             .hold = static_cast<Operation*>(&bounce)});
}

void OfiPort::deliver_announced(Peer& peer, const Bounce& bounce, const Prefix& prefix,
                                std::size_t bytes) {
    if (peer.address == FI_ADDR_NOTAVAIL) {
        const ByteView where(bounce.data + envelope_bytes, bytes - envelope_bytes);
        const auto inserted = insert(peer, where);
        if (!inserted)
            return lose(peer, inserted.error().message,
                        inserted.error().code == Code::no_memory ? fabric::Culprit::own
                                                                 : fabric::Culprit::peer);
        peer.address = *inserted;
    }
    Incoming& in = incoming_.take();
    in.peer = &peer;
    in.theirs = prefix.number;
    in.bytes = prefix.bytes;
    Operation* const hold = &in;
    const bool kept = events_->arrived({.header = bounce.data + sizeof prefix,
                                        .data = nullptr,
                                        .bytes = prefix.bytes,
                                        .hold = hold});
    if (!kept) release(hold);
}

Progress OfiPort::fetch(void* hold, std::byte* where, std::size_t bytes, void* context) {
    auto& in = static_cast<Incoming&>(*static_cast<Operation*>(hold));
    if (in.peer->gone || !broken_.empty() || bytes != in.bytes) return Progress::failed;
    auto registered = memory_.use(where, bytes);
    if (!registered) {
        lose(*in.peer, registered.error().message, fabric::Culprit::own);
        return Progress::failed;
    }
    const ssize_t code = fi_trecv(objects_.endpoint.get(), where, bytes, registered->descriptor(),
                                  FI_ADDR_UNSPEC, payload_tag(in), 0, static_cast<Operation*>(&in));
    if (code == -FI_EAGAIN) return Progress::busy;
    if (code != 0) {
        // From whom it is to come, libfabric does not know.
        lose(*in.peer,
             fmt::format("libfabric ({}): receiving {} bytes: {}", objects_.provider(), bytes,
                         reason(code)),
             fabric::Culprit::own);
        return Progress::failed;
    }
    in.registered = std::move(*registered);
    in.context = context;
    in.state = Incoming::State::fetching;
    say(*in.peer, Kind::grant, in.theirs, payload_tag(in));
    return Progress::pending;
}

void OfiPort::fetched(Incoming& in, Code code) {
    in.state = Incoming::State::ended;
    in.registered = {};
    events_->fetched(in.context, code);
}

void OfiPort::release(void* hold) {
    auto* const operation = static_cast<Operation*>(hold);
    if (operation->kind == Operation::Kind::receive) {
        auto& bounce = static_cast<Bounce&>(*operation);
        bounce.of->resting.push_back(&bounce);
        return;
    }
    auto& in = static_cast<Incoming&>(*operation);
    if (in.state == Incoming::State::announced) say(*in.peer, Kind::drop, in.theirs, 0);
    incoming_.give(in);
}

}  // namespace tutti::ofi
