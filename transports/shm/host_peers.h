// The connections of one rank with other processes of its host: one Unix socket each. Over it,
// processes pass doorbells and segments and announce channels. Its end means that the other process
// has ended.
//
// Threads. Handlers run on the reactor's thread, one at a time, under receive_mutex_, and call the
// sink with no other lock held. get() and send() run on any thread and hold mutex_ or a peer's
// send_mutex only for a moment. If two ranks connect to each other at once, both succeed, and both
// connections live. A sink must not call back into the transport. A caller of close() must not hold
// a lock that a sink takes.
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
    int pid = 0;  // for error messages
    bool said_bye = false;
    std::mutex send_mutex;
    uint32_t segments_sent = 0;  // the number of this process's segments sent to the peer; under
                                 // send_mutex
    std::shared_ptr<ChannelPool> channels;
    std::shared_ptr<const Doorbell> doorbell;  // the peer's; nullptr until it has arrived
    std::shared_ptr<PeerLife> life = std::make_shared<PeerLife>();
};

class HostPeers : public std::enable_shared_from_this<HostPeers> {
public:
    HostPeers(const TransportContext& context, std::shared_ptr<Arena> arena,
              std::shared_ptr<Neighbours> neighbours);

    /// Takes over a connection that a peer made, after its hello.
    void accept(UniqueFd socket, const ShmHello& hello);

    /// The connection with a peer; connects if there is none. unsupported: the peer cannot be
    /// reached.
    Result<std::shared_ptr<HostPeer>> get(const PeerAddress& peer, const net::AuthKey& key,
                                          Deadline deadline);

    /// Opens a channel towards a peer, in memory that both processes map.
    Result<std::unique_ptr<Sender>> open(const std::shared_ptr<HostPeer>& pair, const ChannelId& id,
                                         Deadline deadline);

    /// That rank's process has ended: its channels carry nothing more. Any thread.
    void process_ended(Rank rank);
    /// Drops that rank's resources if no connection can bring messages for which they are needed.
    /// Any thread.
    void forget_unless_connected(Rank rank);

    /// Says bye to every peer and closes the connections; calls the sink no more after that.
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
    std::vector<bool> reported_;  // by rank: whether the loss was reported to the sink
    std::mutex mutex_;
    std::vector<std::shared_ptr<HostPeer>> peers_;
};

}  // namespace tutti::shm
