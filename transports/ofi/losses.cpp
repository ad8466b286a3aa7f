// The end of a peer, or of the endpoint, and of the operations that wait for it.
#include "base/log.h"
#include "transports/ofi/port.h"
#include "wait/pace.h"

namespace tutti::ofi {
namespace {

// A port that waits for a peer and sends it nothing would not hear of its death: it sends something
// once in this time.
constexpr int64_t ping_ns = 200'000'000;
constexpr uint32_t turns_per_look = 16;

// A disconnect waits that long for libfabric to let go of memory. A dead process's connections
// break at once, and a cancelled receive ends at once.
constexpr int let_go_ms = 1000;

}  // namespace

void OfiPort::mark_lost(OfiPeer& peer, const std::string& cause, Culprit culprit) {
    if (std::exchange(peer.gone, true)) return;
    events_.lost(peer.rank, cause, culprit);
    drop_waiting(peer);
}

// Ends what libfabric does not have in its hands, and asks it to let go of the rest.
void OfiPort::drop_waiting(OfiPeer& peer) {
    sends_.forget(peer);
    control_.remove_if([&](const QueuedControl& c) { return c.peer == &peer; });
    payloads_.outgoing.each([&](PayloadOut& out) {
        if (out.peer == &peer && out.state != PayloadOut::State::sending)
            finish(out, Code::peer_lost);
    });
    payloads_.incoming.each([&](PayloadIn& in) {
        if (in.peer == &peer && in.state == PayloadIn::State::fetching && broken_.empty())
            fi_cancel(&objects_.endpoint->fid, static_cast<OpContext*>(&in));
    });
}

void OfiPort::check_peers() {
    if (++turns_ % turns_per_look != 0 || !payloads_.any()) return;
    const int64_t now = now_ns();
    if (now - looked_ns_ < ping_ns) return;
    looked_ns_ = now;
    for (OfiPeer* peer : peers_.by_rank())
        if (peer && peer->reached && !peer->gone && payloads_.wait_for(*peer))
            try_send_control({peer, peers_.prefix_to(*peer, Kind::ping, 0, 0)});
}

Result<> OfiPort::connect(Rank rank, ByteView address) {
    if (!broken_.empty()) return fail_rank(Code::system, rank, "{}", broken_);
    return peers_.connect(rank, address);
}

void OfiPort::disconnect(Rank rank) {
    OfiPeer* const peer = peers_.find(rank);
    if (!peer) return;
    peer->gone = true;
    drop_waiting(*peer);
    Pace pace(Deadline::after_ms(let_go_ms));
    CqEntry completion;
    while (payloads_.wait_for(*peer)) {
        if (completions_.next(completion))
            handle(completion);
        else if (!pace.pause())
            return fail_port(fmt::format("it did not let go of a message of rank {} within {} ms",
                                         peer->rank, let_go_ms));
    }
}

// libfabric holds memory of the caller's that it must not touch any more, and only closing the
// endpoint makes sure of that; or it takes no receives. It ends the port for all, and none of those
// who are still there is to blame.
void OfiPort::fail_port(std::string_view cause) {
    broken_ = fmt::format("libfabric ({}): closed: {}", objects_.provider(), cause);
    log::warn("{}", broken_);
    close_endpoint();
    wake_.silence();
    completions_.waiting().clear();
    control_.clear();
    granted_.clear();
    sends_.forget_all();
    payloads_.outgoing.each([&](PayloadOut& out) { finish(out, Code::peer_lost); });
    payloads_.incoming.each([&](PayloadIn& in) {
        if (in.state == PayloadIn::State::fetching) fetched(in, Code::peer_lost);
    });
    for (OfiPeer* peer : std::vector<OfiPeer*>(peers_.by_rank()))
        if (peer && peer->connected) mark_lost(*peer, broken_, Culprit::own);
}

}  // namespace tutti::ofi
