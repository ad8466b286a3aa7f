#include "transports/ofi/peers.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "net/socket.h"

namespace tutti::ofi {
namespace {

uint64_t random_number() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

}  // namespace

OfiPeerTable::OfiPeerTable(const Objects& objects, Rank rank, Rank size)
    : objects_(objects),
      rank_(rank),
      port_(random_number()),
      by_rank_(static_cast<std::size_t>(size)) {}

OfiPeer* OfiPeerTable::find(Rank rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return rank >= 0 && index < by_rank_.size() ? by_rank_[index] : nullptr;
}

OfiPeer& OfiPeerTable::add(Rank rank, uint64_t port) {
    OfiPeer& peer = *peers_.emplace_back(std::make_unique<OfiPeer>());
    peer.rank = rank;
    peer.port = port;
    by_rank_[static_cast<std::size_t>(rank)] = &peer;
    return peer;
}

Result<fi_addr_t> OfiPeerTable::insert(const OfiPeer& peer, ByteView where) {
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

Result<> OfiPeerTable::take_address(OfiPeer& peer, ByteView where) {
    if (peer.address != FI_ADDR_NOTAVAIL) return {};
    TUTTI_ASSIGN(peer.address, insert(peer, where));
    return {};
}

Result<> OfiPeerTable::connect(Rank rank, ByteView address) {
    ByteReader in(address);
    const auto port = in.get<uint64_t>();
    const std::string provider = in.get_text(max_address_bytes);
    const std::string where = in.get_text(max_address_bytes);
    const std::string second = in.get_text(max_address_bytes);
    if (!in.at_end() || where.empty() || rank < 0 || std::cmp_greater_equal(rank, by_rank_.size()))
        return fail_rank(Code::invalid, rank, "libfabric: rank {} has published no address", rank);
    if (provider != objects_.provider())
        return fail_rank(Code::unsupported, rank,
                         "libfabric: rank {} uses the provider '{}' and this rank '{}'; "
                         "TUTTI_OFI_PROVIDER makes them the same",
                         rank, provider, objects_.provider());
    OfiPeer* peer = find(rank);
    if (!peer || peer->gone || peer->port != port) peer = &add(rank, port);
    TUTTI_TRY(take_address(*peer, as_bytes(where)));
    if (!second.empty() && peer->second == FI_ADDR_NOTAVAIL) {
        TUTTI_ASSIGN(peer->second, insert(*peer, as_bytes(second)));
    }
    peer->connected = true;
    return {};
}

void OfiPeerTable::reach(OfiPeer& peer, bool sockets) {
    if (std::exchange(peer.reached, true) || !sockets) return;
    std::array<std::byte, max_address_bytes> where{};
    std::size_t bytes = where.size();
    if (fi_av_lookup(objects_.addresses.get(), peer.address, where.data(), &bytes) != 0) return;
    net::bound_hidden_if_local(objects_.address,
                               ByteView(where.data(), std::min(bytes, where.size())));
}

OfiPeer* OfiPeerTable::sender_of(const Prefix& prefix) {
    if (prefix.target != port_ || prefix.source_rank < 0 ||
        std::cmp_greater_equal(prefix.source_rank, by_rank_.size()))
        return nullptr;
    OfiPeer* const peer = find(prefix.source_rank);
    if (!peer) return &add(prefix.source_rank, prefix.source);
    return peer->port == prefix.source && !peer->gone ? peer : nullptr;
}

}  // namespace tutti::ofi
