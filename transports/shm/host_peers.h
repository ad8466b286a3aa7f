// The connections of one rank with other processes of its host: a Unix socket each, over which
// doorbells and segments are passed and channels announced, and whose end says that the other
// process has ended.
//
// Threads. Handlers run on the reactor's thread, one at a time, under receive_mutex_, and call the
// sink with no other lock held. get() and send() come from any thread and hold mutex_ or a peer's
// send_mutex only for a moment: two ranks that connect to each other at once both succeed, and both
// connections live. A sink must not call back into the transport, nor may close() be called with a
// lock held that a sink takes.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "net/auth.h"
#include "os/uninherited_fd.h"
#include "transport/mapped/channel_pool.h"
#include "transport/transport.h"
#include "transports/shm/neighbours.h"
#include "transports/shm/wire.h"

namespace tutti::shm {

struct HostPeer {
    UninheritedFd socket;
    Rank peer = nobody;
    int pid = 0;  // for messages
    bool said_bye = false;
    std::mutex send_mutex;
    uint32_t segments_sent = 0;  // of this process's own; under send_mutex
    std::shared_ptr<ChannelPool> channels;
    std::shared_ptr<const Doorbell> doorbell;  // the peer's; null until it has arrived
    std::shared_ptr<PeerLife> life = std::make_shared<PeerLife>();
};

class HostPeers : public std::enable_shared_from_this<HostPeers> {
public:
    HostPeers(const TransportContext& context, std::shared_ptr<Arena> arena,
              std::shared_ptr<Neighbours> neighbours);

    /// A connection that a peer made, after its hello.
    void accept(UniqueFd socket, const ShmHello& hello);

    /// The connection with a peer, made if there is none. unsupported: it is out of reach.
    Result<std::shared_ptr<HostPeer>> get(const PeerAddress& peer, const net::AuthKey& key,
                                          Deadline deadline);

    /// A channel towards a peer, in memory that all of them share.
    Result<std::unique_ptr<Sender>> open(const std::shared_ptr<HostPeer>& pair, const ChannelId& id,
                                         Deadline deadline);

    /// Says bye to everyone and hangs up; afterwards the sink is not called any more.
    void close(Deadline deadline);

private:
    Result<std::shared_ptr<HostPeer>> call(const PeerAddress& peer, const net::AuthKey& key,
                                           Deadline deadline);
    std::shared_ptr<HostPeer> make_pair(UniqueFd socket, Rank peer) const;
    Result<> send(HostPeer& pair, const PairMessage& message, std::span<const int> fds,
                  Deadline deadline);
    Result<> send_locked(HostPeer& pair, const PairMessage& message, std::span<const int> fds,
                         Deadline deadline);
    Result<> announce(HostPeer& pair, const PairMessage& channel, Deadline deadline);
    std::shared_ptr<HostPeer> find(Rank peer);
    Result<> watch(const std::shared_ptr<HostPeer>& pair);
    void ready(const std::shared_ptr<HostPeer>& pair);
    Result<> handle_message(const std::shared_ptr<HostPeer>& pair);
    Result<> handle_doorbell(HostPeer& pair, std::vector<UniqueFd> fds);
    Result<> handle_segment(HostPeer& pair, const PairMessage& message, std::vector<UniqueFd> fds);
    Result<> handle_channel(HostPeer& pair, const PairMessage& message);
    void ring_own() const;
    void lost(const std::shared_ptr<HostPeer>& pair, const Error& error);

    TransportContext context_;
    const std::shared_ptr<Arena> arena_;
    const std::shared_ptr<Neighbours> neighbours_;
    std::mutex receive_mutex_;
    bool closed_ = false;
    std::vector<bool> reported_;  // by rank: the sink knows that it is lost
    std::mutex mutex_;
    std::vector<std::shared_ptr<HostPeer>> peers_;
};

}  // namespace tutti::shm
