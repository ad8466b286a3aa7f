#include "fabric/engine.h"

#include <utility>

#include "fabric/channel.h"

namespace tutti::fabric {

// Deletes the flows before the port, because their arrivals belong to the port.
FabricEngine::~FabricEngine() {
    if (!parts_.port.is_open()) return;
    parts_.entry.end_close();
    parts_.peers.each([this](const Peer& peer) {
        parts_.flows.each(peer.rank,
                          [this](Flow& flow) { flow.in.release_holds(parts_.port.port()); });
    });
    parts_.port.close();
}

// ---- for the transport -----------------------------------------------------------------------

Result<std::unique_ptr<Sender>> FabricEngine::open(const ChannelId& id, ByteView port,
                                                   uint64_t nonce) {
    const Guard guard(loop_);
    if (!guard || parts_.entry.closing())
        return fail_rank(Code::aborted, id.peer, "the transport is closed");
    TUTTI_TRY(parts_.flows.check_alive(id));
    TUTTI_ASSIGN(Peer* const peer, parts_.peers.reach(id.peer, port, nonce));
    TUTTI_ASSIGN(Flow* const flow, parts_.flows.open(id, *peer));
    parts_.boards.adopt(*flow);
    flow->out.takes_device = peer->takes_device;
    parts_.entry.ready().append(*flow);
    loop_.flush();
    return std::make_unique<FabricSender>(shared_from_this(), *flow);
}

std::unique_ptr<Receiver> FabricEngine::make_receiver(Flow& flow) {
    return std::make_unique<FabricReceiver>(shared_from_this(), flow);
}

void FabricEngine::mark_failed(Rank peer) {
    parts_.failed.mark(peer);
    progress();
}

Result<> FabricEngine::add_memory(std::byte* data, std::size_t bytes) {
    const Guard guard(loop_);
    PortMemory* const memory = parts_.port.port().memory();
    return guard && memory ? memory->add_memory(data, bytes) : Result<>{};
}

void FabricEngine::remove_memory(std::byte* data, std::size_t bytes) {
    const Guard guard(loop_);
    PortMemory* const memory = parts_.port.port().memory();
    if (guard && memory) memory->remove_memory(data, bytes);
}

void FabricEngine::tick() {
    progress();
    parts_.marks.tick();
}

void FabricEngine::on_doorbell() {
    // If the owner leaves the descriptor readable, the reactor calls again.
    if (!parts_.entry.try_enter()) return;
    parts_.doorbell.drain();
    loop_.turn();
    loop_.exit();
}

void FabricEngine::begin_close(Deadline deadline) {
    parts_.entry.begin_close(deadline, [] {});
}

bool FabricEngine::close_step() {
    loop_.turn();
    parts_.entry.drop_pending();
    const bool done = parts_.peers.send_byes();
    loop_.flush();
    return done;
}

void FabricEngine::end_close(Deadline deadline) {
    parts_.port.port().flush(deadline);
    parts_.peers.drop_all();
    loop_.follow_up();
    parts_.entry.end_close();
}

// ---- for the channels ------------------------------------------------------------------------

void FabricEngine::schedule_send(Flow& flow) {
    ReadyList<Flow>& ready = parts_.entry.ready();
    const auto send_or_append = [&] {
        // If nothing else is queued, this flow's message is sent without queueing.
        const bool alone = ready.empty() && !ready.added() && !parts_.peers.any_due() &&
                           !parts_.port.is_busy(flow.peer);
        if (!alone || parts_.outgoing.send_next(flow)) ready.append(flow);
    };
    if (!parts_.entry.enter_to_send(flow, send_or_append)) return;
    loop_.flush();
    loop_.exit();
}

void FabricEngine::arm(bool on) {
    if (const Guard guard(loop_); guard) parts_.doorbell.count_sleepers(on ? 1 : -1);
}

// Waits for memory that the library is reading if the library cannot be given a copy, and for a
// GPU's memory.
void FabricEngine::cancel_sends(Flow& flow) {
    if (!loop_.enter()) return;
    if (flow.peer.state != Peer::State::gone && !parts_.outgoing.copy_unsent(flow))
        loop_.mark_lost(flow.peer, "no memory for a copy of a message that was being sent",
                        Culprit::own);
    const auto borrowed = [&] { return Outgoing::borrows(flow); };
    if (loop_.wait_for(flow.peer, borrowed, "it did not take a message")) loop_.exit();
}

/// Afterwards the caller's memory holds neither whole messages nor one that is arriving.
void FabricEngine::cancel_receives(Flow& flow) {
    using State = ReceiveQueue::State;
    if (!loop_.enter()) return;
    for (ReceiveQueue::ReceiveSlot& slot : flow.in.slots) {
        const auto fetching = [&] {
            return slot.offered && slot.state.load(std::memory_order_relaxed) == State::fetching;
        };
        if (fetching() && flow.peer.state != Peer::State::gone) parts_.incoming.fetch_to_cell(slot);
        if (!loop_.wait_for(flow.peer, fetching, "it did not send a message")) return;
        const bool whole = slot.state.load(std::memory_order_relaxed) == State::whole;
        if (slot.offered && whole && !parts_.incoming.save_offered(slot))
            loop_.mark_lost(flow.peer, "no memory to keep a message", Culprit::own);
    }
    flow.in.offer.clear();
    loop_.exit();
}

void FabricEngine::close_sender(Flow& flow) {
    if (const Guard guard(loop_); guard) parts_.flows.close_sender(flow);
}

void FabricEngine::close_receiver(Flow& flow) {
    const Guard guard(loop_);
    if (!guard) return;
    parts_.incoming.close(flow);
    if (flow.in.credits_due()) {
        parts_.entry.ready().append(flow);
        loop_.flush();
    }
    parts_.flows.half_closed(flow);
}

void FabricEngine::reject(Peer& peer, const std::string& cause) {
    if (const Guard guard(loop_); guard) parts_.port.report_protocol_error(peer, cause);
}

void FabricEngine::place_next(Flow& flow) {
    if (const Guard guard(loop_); guard) parts_.incoming.place_next(flow);
}

}  // namespace tutti::fabric
