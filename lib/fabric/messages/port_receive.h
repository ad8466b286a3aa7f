// A message port's completions, and its incoming direction: messages in receive buffers (Prefix),
// and the payloads of large messages, which a peer sends only after send_control(grant).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"
#include "fabric/messages/port.h"
#include "wait/pace.h"

namespace tutti::fabric {

template <typename Messenger>
Result<> MessagePort<Messenger>::open() {
    TUTTI_TRY(messenger_.open());
    const BufferCounts counts(messenger_.limits());
    TUTTI_TRY(sends_.allocate(messenger_.library_memory(), counts.sends, counts.sent_bytes));
    TUTTI_TRY(first_.start(messenger_, counts.receives, counts.message_bytes));
    return second_.start(messenger_, counts.second_receives, counts.second_bytes);
}

template <typename Messenger>
bool MessagePort<Messenger>::progress() {
    if (!broken_.empty()) return false;
    check_peers();
    const bool behind = !again_.empty() || !control_.empty() || !payloads_.granted.empty() ||
                        first_.is_behind() || second_.is_behind();
    const bool moved = behind && retry();
    return take_completions() || moved;
}

/// Handles the completions that are there now and no later ones, else a busy peer could keep this
/// thread for ever.
template <typename Messenger>
bool MessagePort<Messenger>::take_completions() {
    std::array<OpCompletion, 16> completions;
    const std::size_t count = broken_.empty() ? messenger_.read(completions) : 0;
    for (std::size_t i = 0; i < count && broken_.empty(); ++i) handle(completions[i]);
    return count > 0;
}

template <typename Messenger>
void MessagePort<Messenger>::handle(const OpCompletion& completion) {
    OpContext& operation = *completion.operation;
    if (operation.kind == OpContext::Kind::receive)
        return received(static_cast<BounceBuffer&>(operation), completion);
    MessagePeer& peer = *operation.peer;
    const std::size_t bytes = operation.bytes;
    const bool incoming = operation.kind == OpContext::Kind::payload_in;
    const bool whole = !incoming || completion.bytes == bytes;
    const Code code = completion.error == 0 && whole ? Code::ok : Code::peer_lost;
    if (!incoming) sends_.left(peer);
    switch (operation.kind) {
        case OpContext::Kind::receive:
            break;
        case OpContext::Kind::staged: {
            auto& staged = static_cast<StagedMessage&>(operation);
            if (code == Code::ok && !staged.second) note_reached(peer);
            if (send_later(staged, completion.error)) return;
            sends_.give(staged);
            break;
        }
        case OpContext::Kind::payload_out: {
            auto& out = static_cast<PayloadOut&>(operation);
            if (code == Code::ok && out.staged) note_reached(peer);
            finish(out, code);
            break;
        }
        case OpContext::Kind::payload_in:
            fetched(static_cast<PayloadIn&>(operation), code);
            break;
    }
    if (completion.error != 0)
        mark_lost(peer,
                  messenger_.failure(incoming ? "receiving" : "sending", bytes, completion.error));
    else if (!whole)
        mark_lost(peer, fmt::format("{}: received a payload of {} bytes instead of {}",
                                    messenger_.name(), completion.bytes, bytes));
}

template <typename Messenger>
void MessagePort<Messenger>::flush(Deadline deadline) {
    Pace pace(deadline);
    while (broken_.empty() && (sends_.any_leaving() || !again_.empty() || !control_.empty() ||
                               !payloads_.granted.empty()))
        if (progress() ? deadline.passed() : !pace.pause()) return;
}

// ---- messages --------------------------------------------------------------------------------

template <typename Messenger>
void MessagePort<Messenger>::post_more(ReceiveBuffers& buffers) {
    if (!broken_.empty()) return;
    if (const auto posted = buffers.post(messenger_); !posted) fail_port(posted.error().message);
}

template <typename Messenger>
void MessagePort<Messenger>::received(BounceBuffer& bounce, const OpCompletion& completion) {
    ReceiveBuffers& buffers = *bounce.of;
    buffers.completed();
    if (completion.error != 0)
        log::debug("{}", messenger_.failure("receiving up to", bounce.bytes, completion.error));
    const bool held = completion.error == 0 && handle_message(bounce, completion.bytes);
    if (!held) buffers.give(bounce);
    post_more(buffers);
}

// True: the engine keeps the receive buffer until release(). False: the port may post it again.
template <typename Messenger>
bool MessagePort<Messenger>::handle_message(BounceBuffer& bounce, std::size_t bytes) {
    Prefix prefix;
    if (bytes < sizeof prefix) return false;
    std::memcpy(&prefix, bounce.data, sizeof prefix);
    MessagePeer* const peer =
        plausible(prefix, bytes, limits().eager_bytes) ? peers_.sender_of(prefix) : nullptr;
    if (!peer) {
        log::debug("{}: dropped a message of {} bytes from an unknown sender", messenger_.name(),
                   bytes);
        return false;
    }
    switch (prefix.kind) {
        case Prefix::Kind::eager:
            return events_.arrived(
                {.header = bounce.data + sizeof prefix,
                 .data = prefix.bytes > 0 ? bounce.data + envelope_bytes : nullptr,
                 .bytes = prefix.bytes,
                 .hold = static_cast<OpContext*>(&bounce)});
        case Prefix::Kind::announce:
            deliver_announced(*peer, bounce, prefix, bytes);
            break;
        case Prefix::Kind::grant:
        case Prefix::Kind::drop:
            granted(*peer, prefix);
            break;
        case Prefix::Kind::ping:
            break;
    }
    return false;
}

template <typename Messenger>
void MessagePort<Messenger>::deliver_announced(MessagePeer& peer, const BounceBuffer& bounce,
                                               const Prefix& prefix, std::size_t bytes) {
    const ByteView where(bounce.data + envelope_bytes, bytes - envelope_bytes);
    if (const auto known = messenger_.take_address(peer, where); !known)
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

// ---- payloads --------------------------------------------------------------------------------

template <typename Messenger>
Progress MessagePort<Messenger>::fetch(void* hold, std::byte* where, std::size_t bytes,
                                       void* context) {
    auto& in = static_cast<PayloadIn&>(*static_cast<OpContext*>(hold));
    if (in.peer->gone || !broken_.empty() || bytes != in.bytes) return Progress::failed;
    auto registered = messenger_.library_memory().use(where, bytes);
    if (!registered) {
        mark_lost(*in.peer, registered.error().message, Culprit::own);
        return Progress::failed;
    }
    in.registered = std::move(*registered);
    if (const int code = messenger_.receive_payload(in, where); code != 0) {
        in.registered = {};
        if (messenger_.is_full(code)) return Progress::busy;
        // The library does not know which peer should have sent the payload.
        mark_lost(*in.peer, messenger_.failure("receiving", bytes, code), Culprit::own);
        return Progress::failed;
    }
    in.context = context;
    in.state = PayloadIn::State::fetching;
    send_control(*in.peer, Prefix::Kind::grant, in.theirs, in.tag());
    return Progress::pending;
}

template <typename Messenger>
void MessagePort<Messenger>::fetched(PayloadIn& in, Code code) {
    in.state = PayloadIn::State::ended;
    in.registered = {};
    events_.fetched(in.context, code);
}

template <typename Messenger>
void MessagePort<Messenger>::release(void* hold) {
    auto* const operation = static_cast<OpContext*>(hold);
    if (operation->kind == OpContext::Kind::receive) {
        auto& bounce = static_cast<BounceBuffer&>(*operation);
        bounce.of->give(bounce);
        return;
    }
    auto& in = static_cast<PayloadIn&>(*operation);
    if (in.state == PayloadIn::State::announced)
        send_control(*in.peer, Prefix::Kind::drop, in.theirs, 0);
    payloads_.incoming.give(in);
}

}  // namespace tutti::fabric
