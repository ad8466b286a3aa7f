// Whom a port knows, and what happens to operations when a peer goes.
#include <fcntl.h>
#include <rdma/fi_errno.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "base/event_fd.h"
#include "base/log.h"
#include "net/socket.h"
#include "transports/ofi/port.h"

namespace tutti::ofi {
namespace {

// Who waits for a peer and has nothing to send it would not hear of its death: so often it sends
// something.
constexpr int64_t ping_ns = 200'000'000;
constexpr uint32_t turns_per_look = 16;

// How long a disconnect waits for libfabric to let go of memory. A dead process's connections
// break at once, and a cancelled receive ends at once.
constexpr int let_go_ms = 1000;

}  // namespace

Peer* OfiPort::find(Rank rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return rank >= 0 && index < by_rank_.size() ? by_rank_[index] : nullptr;
}

Peer& OfiPort::add_peer(Rank rank, uint64_t port) {
    Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
    peer.rank = rank;
    peer.port = port;
    by_rank_[static_cast<std::size_t>(rank)] = &peer;
    return peer;
}

Result<fi_addr_t> OfiPort::insert(const Peer& peer, ByteView where) {
    // Providers read as much as their kind of address has: never past the end of a shorter one.
    Bytes padded(where.begin(), where.end());
    padded.resize(max_address_bytes);
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    const int inserted =
        fi_av_insert(objects_.addresses.get(), padded.data(), 1, &address, 0, nullptr);
    if (inserted == 1) return address;
    return fail_fi(*objects_.info, fmt::format("taking the address of rank {}", peer.rank),
                   inserted < 0 ? inserted : -FI_EINVAL);
}

Result<> OfiPort::connect(Rank rank, ByteView address) {
    if (!broken_.empty()) return fail_rank(Code::system, rank, "{}", broken_);
    ByteReader in(address);
    const auto port = in.get<uint64_t>();
    const std::string provider = in.get_text(max_address_bytes);
    const std::string where = in.get_text(max_address_bytes);
    const std::string second = in.get_text(max_address_bytes);
    if (!in.at_end() || where.empty() || rank < 0 || rank >= options_.size)
        return fail_rank(Code::invalid, rank, "libfabric: rank {} has published no address", rank);
    if (provider != objects_.provider())
        return fail_rank(Code::unsupported, rank,
                         "libfabric: rank {} uses the provider '{}' and this rank '{}'; "
                         "TUTTI_OFI_PROVIDER makes them the same",
                         rank, provider, objects_.provider());
    Peer* peer = find(rank);
    if (!peer || peer->gone || peer->port != port) peer = &add_peer(rank, port);
    if (peer->address == FI_ADDR_NOTAVAIL) {
        TUTTI_ASSIGN(peer->address, insert(*peer, as_bytes(where)));
    }
    if (!second.empty() && peer->second == FI_ADDR_NOTAVAIL) {
        TUTTI_ASSIGN(peer->second, insert(*peer, as_bytes(second)));
    }
    peer->connected = true;
    return {};
}

// Something that was sent to it has left: there is a connection, if the provider has any.
void OfiPort::reach(Peer& peer) {
    if (std::exchange(peer.reached, true) || !limits_.sockets) return;
    std::array<std::byte, max_address_bytes> where{};
    std::size_t bytes = where.size();
    if (fi_av_lookup(objects_.addresses.get(), peer.address, where.data(), &bytes) != 0) return;
    net::bound_hidden_if_local(objects_.address,
                               ByteView(where.data(), std::min(bytes, where.size())));
}

// Who has sent a message, if it may be one of ours and is wanted.
Peer* OfiPort::sender_of(const Prefix& prefix) {
    if (prefix.target != port_ || prefix.source_rank < 0 || prefix.source_rank >= options_.size)
        return nullptr;
    Peer* const peer = find(prefix.source_rank);
    if (!peer) return &add_peer(prefix.source_rank, prefix.source);
    return peer->port == prefix.source && !peer->gone ? peer : nullptr;
}

void OfiPort::lose(Peer& peer, const std::string& cause, fabric::Culprit culprit) {
    if (std::exchange(peer.gone, true)) return;
    events_->lost(peer.rank, cause, culprit);
    drop_waiting(peer);
}

// Ends what libfabric does not have in its hands, and asks it to let go of the rest.
void OfiPort::drop_waiting(Peer& peer) {
    leaving_ -= std::exchange(peer.leaving, 0);
    control_.remove_if([&](const Control& c) { return c.peer == &peer; });
    outgoing_.each([&](Outgoing& out) {
        if (out.peer == &peer && out.state != Outgoing::State::sending)
            finish(out, Code::peer_lost);
    });
    incoming_.each([&](Incoming& in) {
        if (in.peer == &peer && in.state == Incoming::State::fetching && broken_.empty())
            fi_cancel(&objects_.endpoint->fid, static_cast<Operation*>(&in));
    });
}

bool OfiPort::waits_for(const Peer& peer) {
    bool waits = false;
    outgoing_.each([&](const Outgoing& out) { waits |= out.peer == &peer; });
    incoming_.each([&](const Incoming& in) {
        waits |= in.peer == &peer && in.state == Incoming::State::fetching;
    });
    return waits;
}

void OfiPort::look_after_peers() {
    if (++turns_ % turns_per_look != 0 || outgoing_.taken() + incoming_.taken() == 0) return;
    const int64_t now = now_ns();
    if (now - looked_ns_ < ping_ns) return;
    looked_ns_ = now;
    for (Peer* peer : by_rank_)
        if (peer && peer->reached && !peer->gone && waits_for(*peer))
            say_now({peer, prefix_to(*peer, Kind::ping, 0, 0)});
}

void OfiPort::disconnect(Rank rank) {
    Peer* const peer = find(rank);
    if (!peer) return;
    peer->gone = true;
    drop_waiting(*peer);
    const auto deadline = Deadline::after_ms(let_go_ms);
    Completion completion;
    while (waits_for(*peer)) {
        if (next(completion))
            handle(completion);
        else if (deadline.passed())
            return give_up(fmt::format("it did not let go of a message of rank {} within {} ms",
                                       peer->rank, let_go_ms));
        else
            std::this_thread::yield();
    }
}

// Whoever sleeps watches the completion queue's descriptor, and nothing empties that any more:
// fi_trywait() looks for the endpoint (ofi_rxm dies of it). Its number stays taken, by one that is
// never readable, until the queue is closed.
void OfiPort::silence() const {
    if (objects_.wake_fd < 0) return;
    const auto quiet = make_event_fd();
    if (!quiet || ::dup3(quiet->get(), objects_.wake_fd, O_CLOEXEC) < 0)
        log::debug("libfabric ({}): the closed queue stays audible: errno {}", objects_.provider(),
                   errno);
}

// libfabric holds memory of the caller's that it must not touch any more, and only closing the
// endpoint makes sure of that; or it takes no receives. It ends the port for all, and none of those
// who are still there is to blame.
void OfiPort::give_up(std::string_view cause) {
    broken_ = fmt::format("libfabric ({}): closed: {}", objects_.provider(), cause);
    log::warn("{}", broken_);
    close_endpoint();
    silence();
    completions_.clear();
    control_.clear();
    granted_.clear();
    leaving_ = 0;
    outgoing_.each([&](Outgoing& out) { finish(out, Code::peer_lost); });
    incoming_.each([&](Incoming& in) {
        if (in.state == Incoming::State::fetching) fetched(in, Code::peer_lost);
    });
    for (Peer* peer : std::vector<Peer*>(by_rank_))
        if (peer && peer->connected) lose(*peer, broken_, fabric::Culprit::own);
}

}  // namespace tutti::ofi
