#include "fabric/messages/peers.h"

#include <random>

namespace tutti::fabric {
namespace {

uint64_t random_number() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

}  // namespace

MessagePeers::MessagePeers(Rank rank, Rank size)
    : rank_(rank), port_(random_number()), by_rank_(static_cast<std::size_t>(size)) {}

MessagePeer& MessagePeers::add(Rank rank, uint64_t port) {
    MessagePeer& peer = *peers_.emplace_back(std::make_unique<MessagePeer>());
    peer.rank = rank;
    peer.port = port;
    by_rank_[static_cast<std::size_t>(rank)] = &peer;
    return peer;
}

MessagePeer& MessagePeers::find_or_add(Rank rank, uint64_t port) {
    MessagePeer* const peer = find(rank);
    return peer && !peer->gone && peer->port == port ? *peer : add(rank, port);
}

}  // namespace tutti::fabric
