#include "fabric/peers.h"

#include <algorithm>
#include <utility>

namespace tutti::fabric {

Peer& PeerTable::find_or_add(Rank rank) {
    if (peers_.empty()) shared_.doorbell.count_sleepers(-1);
    auto& peer = peers_[rank];
    if (!peer) peer = std::make_unique<Peer>(rank);
    return *peer;
}

Result<> PeerTable::connect(Peer& peer, ByteView port, uint64_t nonce) {
    if (peer.connected) return {};
    Port& library = shared_.port.port();
    TUTTI_TRY(library.connect(peer.rank, port));
    peer.connected = true;
    shared_.marks.peer_connected();
    peer.takes_device = library.devices() && library.devices()->takes_device(peer.rank);
    peer.nonce = nonce;
    peer.nonce_known = true;
    return {};
}

Result<Peer*> PeerTable::reach(Rank rank, ByteView port, uint64_t nonce) {
    Peer& peer = find_or_add(rank);
    if (peer.health.load(std::memory_order_relaxed) != Code::ok)
        return fail_rank(Code::peer_lost, rank, "rank {} is gone", rank);
    TUTTI_TRY(connect(peer, port, nonce));
    if (peer.state == Peer::State::unknown) {
        peer.state = Peer::State::hello;
        mark_due(peer, Peer::hello_due);
    }
    return &peer;
}

void PeerTable::make_ready(Peer& peer) {
    peer.state = Peer::State::ready;
    shared_.flows.each(peer.rank, [this](Flow& flow) { shared_.ready.append(flow); });
}

void PeerTable::send_all_due() {
    if (with_due_.empty()) return;
    // Sending may add peers to the list.
    for (std::size_t i = 0; i < with_due_.size(); ++i)
        if (!shared_.port.is_busy(*with_due_[i])) send_due(*with_due_[i]);
    std::erase_if(with_due_, [](const Peer* p) { return p->due == 0; });
}

/// False: the library had no room.
bool PeerTable::send_due(Peer& peer) {
    constexpr std::pair<uint8_t, Kind> order[] = {{Peer::hello_due, Kind::hello},
                                                  {Peer::welcome_due, Kind::welcome},
                                                  {Peer::bye_due, Kind::bye},
                                                  {Peer::farewell_due, Kind::farewell}};
    for (const auto& [bit, kind] : order) {
        if ((peer.due & bit) == 0) continue;
        if (!send_control(peer, kind)) return false;
        peer.due &= static_cast<uint8_t>(~bit);
    }
    return true;
}

bool PeerTable::send_control(Peer& peer, Kind kind) {
    Header out = shared_.port.header(kind, peer);
    out.position = peer.sent;
    if (kind != Kind::hello) return shared_.port.send(peer, out);
    out.bytes = static_cast<uint32_t>(hello_.size());
    return shared_.port.send(peer, out, hello_.data());
}

void PeerTable::handle_hello(Peer& peer, const Header& header, const Arrival& arrival) {
    if (!arrival.data || header.bytes < sizeof(uint64_t))
        return shared_.port.report_protocol_error(peer, "its hello has no address");
    ByteReader in(ByteView(arrival.data, arrival.bytes));
    const auto nonce = in.get<uint64_t>();
    const std::string port = in.get_text(header.bytes);
    if (!in.at_end() || (peer.nonce_known && peer.nonce != nonce))
        return shared_.port.report_protocol_error(peer, "its hello is malformed");
    if (auto connected = connect(peer, as_bytes(port), nonce); !connected)
        return shared_.port.mark_lost(peer, connected.error().message);
    // The peer has this rank's address, because it has sent a hello.
    if (peer.state == Peer::State::unknown || peer.state == Peer::State::hello) make_ready(peer);
    mark_due(peer, Peer::welcome_due);
}

void PeerTable::handle_bye(Peer& peer, const Header& header) {
    peer.bye_received = true;
    peer.last = header.position;
    retire_if_done(peer);
}

// ---- the end ---------------------------------------------------------------------------------

void PeerTable::retire_if_done(Peer& peer) {
    if (!peer.bye_received || peer.received != peer.last || peer.leaving) return;
    bool complete = true;
    shared_.flows.each(peer.rank, [&](const Flow& flow) { complete &= flow.in.is_complete(); });
    if (!complete) return;
    peer.leaving = true;
    mark_due(peer, Peer::farewell_due);
    leaving_.push_back(&peer);
}

// A leaving peer does not need messages in flight to it, so dropping it gives their memory back to
// the caller.
void PeerTable::drop_leaving() {
    for (std::size_t i = 0; i < leaving_.size();) {
        Peer* peer = leaving_[i];
        if (peer->due != 0) {
            ++i;
            continue;
        }
        leaving_.erase(leaving_.begin() + static_cast<std::ptrdiff_t>(i));
        if (peer->state != Peer::State::gone) drop(*peer);
    }
}

// Disconnects first, so that pending operations get their events: once channels see that the peer
// is lost, the library no longer accesses their memory.
void PeerTable::drop(Peer& peer) {
    peer.state = Peer::State::gone;
    peer.due = 0;
    shared_.port.port().disconnect(peer.rank);
    peer.health.store(Code::peer_lost, std::memory_order_seq_cst);
    shared_.waker.ring();
}

bool PeerTable::send_byes() {
    bool done = true;
    for (auto& [rank, peer] : peers_) {
        const bool talks = peer->state == Peer::State::hello || peer->state == Peer::State::ready;
        if (!talks) continue;
        bool sent = true;
        shared_.flows.each(rank, [&](const Flow& flow) { sent &= !flow.out.has_unsent(); });
        if (peer->state == Peer::State::hello) {
            done &= sent;
            continue;
        }
        if (!peer->bye_received && sent && !peer->bye_sent) {
            peer->bye_sent = true;
            mark_due(*peer, Peer::bye_due);
        }
        const bool heard = peer->bye_received || peer->farewell_received;
        done &= peer->due == 0 && (heard || (peer->bye_sent && peer->farewell_received));
    }
    return done;
}

void PeerTable::drop_all() {
    // Copies the list, because dropping a peer may add the first message of another.
    std::vector<Peer*> peers;
    each([&](Peer& peer) { peers.push_back(&peer); });
    for (Peer* peer : peers)
        if (peer->state != Peer::State::gone) drop(*peer);
}

}  // namespace tutti::fabric
