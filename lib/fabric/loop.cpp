#include "fabric/loop.h"

#include <cstring>
#include <utility>

#include "base/log.h"
#include "wait/pace.h"
#include "wait/shared_wait_deadline.h"

namespace tutti::fabric {
namespace {

// The most turns in which arming finds something to do.
constexpr int max_arm_turns = 100;
// A thread that waits for the library to give memory back yields this many times first, and then
// sleeps so long between looks.
constexpr int quick_looks = 1000;
constexpr useconds_t look_again_us = 200;

}  // namespace

EngineParts::EngineParts(const EngineOptions& in_options)
    : options(in_options),
      waker(options.doorbell_fd),
      entry(options.events),
      port(options.rank),
      doorbell(port),
      peers({port, flows, entry.ready(), doorbell, marks, waker}),
      flows(options.retired, "port"),
      incoming(port, peers, entry.ready(), waker, options.limits),
      outgoing(port, peers, entry.ready(), waker),
      boards(options.rank, port, peers, flows, waker) {}

Result<> PortLoop::open_port(PortFactory& factory) {
    parts_.marks.begin();
    TUTTI_TRY(parts_.port.open(factory, *this));
    parts_.marks.port_opened();
    parts_.doorbell.arm();
    parts_.peers.set_hello(ByteWriter()
                               .put(parts_.options.nonce)
                               .put_text(as_text(parts_.port.port().address()))
                               .take());
    return {};
}

// ---- leaving ---------------------------------------------------------------------------------

void PortLoop::finish_turn() {
    follow_up();
    if (parts_.flows.any_forgotten())
        parts_.flows.forget(
            [this](const Flow& flow) {
                // The library keeps no messages of a gone peer.
                const bool alive = flow.peer.health.load(std::memory_order_acquire) == Code::ok;
                return flow.ready.load(std::memory_order_relaxed) ||
                       parts_.incoming.is_arriving(flow) || (alive && flow.out.has_unsent());
            },
            [this](Flow& flow) {
                flow.in.release_holds(parts_.port.port());
                FlatBoards::forget(flow);
            });
    if (parts_.doorbell.must_arm() && !parts_.entry.closing()) arm_port();
}

// After this the sleeping thread checks its condition once more. If arming never succeeds, the
// doorbell wakes all sleepers.
void PortLoop::arm_port() {
    for (int turns = 0; turns < max_arm_turns; ++turns) {
        if (parts_.doorbell.arm()) return;
        turn();
    }
    parts_.waker.ring();
}

// ---- turns -----------------------------------------------------------------------------------

void PortLoop::follow_up_events() {
    // In order, because a peer's first loss has the cause. Handling one may record more.
    while (parts_.port.any_losses())
        for (const EnginePort::Loss& loss : parts_.port.take_losses())
            mark_lost(*loss.peer, loss.cause, loss.culprit);
    parts_.peers.drop_leaving();
    parts_.incoming.fetch_placed();
}

/// Sends queued messages, to each peer until the library has no room for it.
void PortLoop::flush() {
    parts_.entry.ready().take_added();
    parts_.peers.send_all_due();
    parts_.outgoing.send_ready();
    // After the messages of earlier calls, so that the peer has an unread one (a mismatch) before
    // the contribution.
    parts_.boards.send_unsent();
}

bool PortLoop::wait_for(Peer& peer, const std::function<bool()>& pending, const char* failure) {
    const auto deadline = SharedWaitDeadline::deadline(parts_.options.patience_ms);
    Pace pace(Deadline(), {.yields = quick_looks, .sleep_us = look_again_us});
    while (peer.state != Peer::State::gone && pending()) {
        turn();
        if (deadline.passed()) {
            mark_lost(peer, fmt::format("{} within {} ms", failure, parts_.options.patience_ms),
                      Culprit::peer);
            continue;
        }
        exit();
        pace.pause();
        if (!enter()) return false;
    }
    return true;
}

void PortLoop::mark_lost(Peer& peer, const std::string& cause, Culprit culprit) {
    if (peer.state == Peer::State::gone) return;
    const bool expected = peer.bye_received;
    parts_.peers.drop(peer);
    if (!expected) parts_.entry.add_loss(parts_.options.rank, peer.rank, cause, culprit);
}

// The rank that found the peer dead has told all other ranks, so this adds no loss event.
void PortLoop::drop_failed() {
    for (const Rank rank : parts_.failed.take_due())
        if (Peer* const peer = parts_.peers.find(rank); peer && peer->state != Peer::State::gone)
            parts_.peers.drop(*peer);
}

// ---- events: validation, and dispatch of messages ----------------------------------------------

bool PortLoop::arrived(const Arrival& arrival) {
    if (parts_.entry.closed()) return false;
    Header header;
    std::memcpy(&header, arrival.header, sizeof header);
    if (!belongs_here(header, arrival)) return false;
    const Kind kind = header.kind();
    if (kind == Kind::contribution) {
        parts_.boards.handle_contribution(header, arrival);
        return false;
    }
    Flow* const flow = parts_.flows.find({header.sender, header.comm, header.lane});
    Peer& peer = flow ? flow->peer : parts_.peers.find_or_add(header.sender);
    if (peer.state == Peer::State::gone) return false;
    if (kind == Kind::hello) {
        parts_.peers.handle_hello(peer, header, arrival);
    } else if (!peer.connected) {
        parts_.port.report_protocol_error(peer, "it sent a message before its hello");
    } else if (kind == Kind::data) {
        return handle_data(peer, flow, header, arrival);
    } else {
        handle_control(peer, flow, header);
    }
    return false;
}

/// False: the message is malformed, or its sender has not read our address. No known rank is to
/// blame, so this only drops the message.
bool PortLoop::belongs_here(const Header& header, const Arrival& arrival) {
    const char* why = nullptr;
    const bool in_job = header.sender >= 0 && header.sender < parts_.options.size;
    if ((header.magic & header_magic_mask) != header_magic || header.kind() < Kind::hello ||
        header.kind() > Kind::contribution)
        why = "not in tutti's format";
    else if (header.nonce != parts_.options.nonce)
        why = "meant for another process";
    else if (!in_job || header.sender == parts_.options.rank)
        why = "from a rank that does not exist";
    else if (header.bytes != arrival.bytes)
        why = "of another length than its header says";
    if (why && !std::exchange(strangers_, true))
        log::warn(fail(Code::auth,
                       "dropped a message that is {}; later ones are dropped without a warning",
                       why)
                      .advice("end the processes of earlier runs, and install the same version of "
                              "tutti on all hosts")
                      .on(parts_.options.rank));
    return why == nullptr;
}

void PortLoop::handle_control(Peer& peer, Flow* flow, const Header& header) {
    const auto is_late = [&] { return parts_.flows.is_retired(header.comm); };
    switch (header.kind()) {
        case Kind::welcome:
            parts_.peers.handle_welcome(peer);
            break;
        case Kind::bye:
            parts_.peers.handle_bye(peer, header);
            break;
        case Kind::farewell:
            peer.farewell_received = true;
            break;
        case Kind::open:
            // The peer does not know yet that this rank has left the communicator: it may send, and
            // this rank drops its messages.
            if (is_late()) break;
            if (Flow* const opened = find_or_add(peer, header))
                announce(*opened);
            else
                parts_.port.report_protocol_error(
                    peer, fmt::format("it opened more than {} channels", max_channels_taken));
            break;
        case Kind::credit:
            if (flow ? !parts_.outgoing.handle_credits(*flow, header.credits) : !is_late())
                parts_.port.report_protocol_error(
                    peer, fmt::format("it returned {} credits that it did not owe on lane {}",
                                      header.credits, header.lane));
            break;
        default:
            break;
    }
}

/// nullptr: the peer has too many channels.
Flow* PortLoop::find_or_add(Peer& peer, const Header& header) {
    const ChannelId id{peer.rank, header.comm, header.lane};
    if (Flow* const flow = parts_.flows.find(id)) return flow;
    Flow* const flow = parts_.flows.find_or_add(id, peer);
    if (flow) parts_.boards.adopt(*flow);
    return flow;
}

/// Tells the transport of a new channel, once.
void PortLoop::announce(Flow& flow) {
    const bool closing = parts_.entry.closing();
    flow.in.live |= !flow.in.told && !closing;
    if (!std::exchange(flow.in.told, true) && !closing)
        parts_.entry.pending().opened.push_back(&flow);
}

/// True: keeps the library's arrival.
bool PortLoop::handle_data(Peer& peer, Flow* flow, const Header& header, const Arrival& arrival) {
    const auto bad = [&](const std::string& cause) {
        parts_.port.report_protocol_error(peer, cause);
        return false;
    };
    if (header.bytes > parts_.options.max_message_bytes)
        return bad(fmt::format("it announced a message of {} bytes; at most {} are allowed",
                               header.bytes, parts_.options.max_message_bytes));
    if ((!flow || !flow->in.told) && parts_.flows.is_retired(header.comm))
        return handle_late(peer, header);
    if (!flow) flow = find_or_add(peer, header);
    if (!flow) return bad(fmt::format("it opened more than {} channels", max_channels_taken));
    // The message may have overtaken the peer's open.
    if (!flow->in.told) announce(*flow);
    if (header.credits > 0 && !parts_.outgoing.handle_credits(*flow, header.credits))
        return bad(fmt::format("it returned {} credits that it did not owe on lane {}",
                               header.credits, header.lane));
    return parts_.incoming.handle_data(*flow, header, arrival);
}

/// Drops a message of a retired communicator, and records the credit to return.
bool PortLoop::handle_late(Peer& peer, const Header& header) {
    ++peer.received;
    if (!parts_.outgoing.add_late_credit({peer.rank, header.comm, header.lane}))
        parts_.port.report_protocol_error(peer, std::string(LateCredits::too_many));
    else if (peer.bye_received)
        parts_.peers.retire_if_done(peer);
    return false;
}

void PortLoop::sent(void* context, Code code) {
    if (!context) return;
    const auto& under_way = *static_cast<Flow::Sent*>(context);
    parts_.outgoing.complete(*under_way.flow, under_way.position, code == Code::ok);
}

void PortLoop::fetched(void* context, Code code) {
    auto& slot = *static_cast<ReceiveQueue::ReceiveSlot*>(context);
    slot.begun = false;
    // Otherwise the slot stays in fetching: the peer is lost, and cancel() need not wait.
    if (code == Code::ok) parts_.incoming.finish(slot);
}

void PortLoop::lost(Rank rank, const std::string& cause, Culprit culprit) {
    if (Peer* const peer = parts_.peers.find(rank)) parts_.port.mark_lost(*peer, cause, culprit);
}

}  // namespace tutti::fabric
