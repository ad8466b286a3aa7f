#include "transports/shm/host_peers.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_class.h"
#include "base/log.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "wait/event_fd.h"
#include "wait/reactor.h"

namespace tutti::shm {
namespace {

// Peers send a frame in one piece; a peer that stops in the middle must not block the reactor.
constexpr int frame_timeout_ms = 1000;
constexpr int bye_timeout_ms = 100;

int peer_pid(int socket) {
    ucred credentials{};
    socklen_t bytes = sizeof credentials;
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) return 0;
    return credentials.pid;
}

Result<std::shared_ptr<const Doorbell>> make_doorbell(std::vector<UniqueFd> fds) {
    if (fds.size() != 1)
        return fail(Code::invalid, "shm: a peer sent {} file descriptors instead of its doorbell",
                    fds.size())
            .advice(same_version);
    // The peer may have passed any descriptor: ringing it must not block.
    const int flags = ::fcntl(fds[0].get(), F_GETFL);
    if (flags < 0 || ::fcntl(fds[0].get(), F_SETFL, flags | O_NONBLOCK) != 0)
        return fail_errno(errno, "shm: cannot use a peer's doorbell");
    return std::make_shared<const Doorbell>(std::move(fds[0]));
}

// A shortage of memory or descriptors in this process does not mean that the peer is lost.
bool is_shortage(const Error& error) {
    return error.code == Code::no_memory || classify_errno(error.sys_errno) == ErrnoClass::shortage;
}

// True: there is something to read. False: nothing yet. An error: the connection has ended.
Result<bool> has_message(int socket) {
    std::byte first;
    const ssize_t got = ::recv(socket, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return true;
    if (const ErrnoClass errno_class = got < 0 ? classify_errno(errno) : ErrnoClass::peer;
        errno_class == ErrnoClass::again || errno_class == ErrnoClass::shortage)
        return false;
    return fail(Code::peer_lost,
                "the connection ended without a goodbye: the process has ended, or could not "
                "continue (its own log has the reason)");
}

}  // namespace

HostPeers::HostPeers(const TransportContext& context, std::shared_ptr<Arena> arena,
                     std::shared_ptr<Neighbours> neighbours)
    : context_(context),
      arena_(std::move(arena)),
      neighbours_(std::move(neighbours)),
      reported_(static_cast<std::size_t>(context.size)) {}

std::shared_ptr<HostPeer> HostPeers::make_pair(UniqueFd socket, Rank peer) const {
    auto pair = std::make_shared<HostPeer>();
    pair->peer = peer;
    pair->pid = peer_pid(socket.get());
    pair->socket = UninheritedFd(std::move(socket));
    pair->channels = std::make_shared<ChannelPool>(arena_, neighbours_->end_of(peer));
    return pair;
}

std::shared_ptr<HostPeer> HostPeers::find(Rank peer) {
    const std::lock_guard lock(mutex_);
    for (const auto& pair : peers_)
        if (pair->peer == peer && pair->doorbell) return pair;
    return nullptr;
}

Result<> HostPeers::watch(const std::shared_ptr<HostPeer>& pair) {
    {
        const std::lock_guard lock(mutex_);
        peers_.push_back(pair);
    }
    auto added =
        context_.reactor->add(pair->socket.get(), EPOLLIN,
                              [self = shared_from_this(), pair](uint32_t) { self->ready(pair); });
    if (added) return added;
    // Without the reactor, no thread would read from this socket.
    const std::lock_guard lock(mutex_);
    std::erase(peers_, pair);
    return added;
}

void HostPeers::accept(UniqueFd socket, const ShmHello& hello) {
    const std::lock_guard receive_lock(receive_mutex_);
    if (closed_) return;
    if (hello.rank < 0 || hello.rank >= context_.size) {
        log::warn(fail(Code::auth, "shm: refused a connection that claims to be rank {} of {}",
                       hello.rank, context_.size)
                      .advice("end the processes of earlier runs of this job, and give all ranks "
                              "the same TUTTI_SIZE"));
        return;
    }
    const auto pair = make_pair(std::move(socket), hello.rank);
    auto sent = send(*pair, {.kind = PairMessageKind::doorbell}, {&context_.doorbell_fd, 1},
                     Deadline::after_ms(frame_timeout_ms));
    if (sent) sent = watch(pair);
    if (sent) return;
    const auto doing = fmt::format("shm: accepting a connection of rank {}", hello.rank);
    log::warn(wrap(sent.error(), doing).on(context_.rank));
}

Result<std::shared_ptr<HostPeer>> HostPeers::get(const PeerAddress& peer, const net::AuthKey& key,
                                                 Deadline deadline) {
    if (auto existing = find(peer.rank)) return existing;
    for (net::Redial redial;;) {
        auto pair = call(peer, key, deadline);
        if (pair || !redial.again(pair.error(), deadline)) return pair;
    }
}

Result<std::shared_ptr<HostPeer>> HostPeers::call(const PeerAddress& peer, const net::AuthKey& key,
                                                  Deadline deadline) {
    const auto doing = [&] { return fmt::format("shm: connecting to rank {}", peer.rank); };
    auto socket = net::connect_unix(peer.address, {.deadline = deadline});
    const int refused = socket ? 0 : socket.error().sys_errno;
    if (refused == ECONNREFUSED || refused == ENOENT)
        return fail_rank(Code::unsupported, peer.rank,
                         "shm: rank {} cannot be reached (it is in another container or network "
                         "namespace, or has ended): {}",
                         peer.rank, socket.error().message)
            .advice(same_namespace);
    if (!socket) return wrap(std::move(socket).error(), doing());
    const auto pair = make_pair(std::move(*socket), peer.rank);

    const Bytes hello = encode(ShmHello{.kind = HelloKind::pair, .rank = context_.rank});
    if (auto met = net::introduce(pair->socket.get(), key, hello, deadline); !met)
        return wrap(std::move(met).error(), doing());
    TUTTI_TRY(
        send(*pair, {.kind = PairMessageKind::doorbell}, {&context_.doorbell_fd, 1}, deadline));
    auto answer = net::recv_fds(pair->socket.get(), max_frame_bytes, deadline);
    if (!answer) return wrap(std::move(answer).error(), doing());
    TUTTI_ASSIGN(const PairMessage message, decode_pair_message(answer->body));
    if (message.kind != PairMessageKind::doorbell)
        return fail_rank(Code::invalid, peer.rank, "shm: rank {} sent a message of kind {} first",
                         peer.rank, static_cast<int>(message.kind))
            .advice(same_version);
    TUTTI_ASSIGN(pair->doorbell, make_doorbell(std::move(answer->fds)));
    TUTTI_TRY(watch(pair));
    return pair;
}

Result<> HostPeers::send(HostPeer& pair, const PairMessage& message, std::span<const int> fds,
                         Deadline deadline) {
    const std::lock_guard lock(pair.send_mutex);
    return send_locked(pair, message, fds, deadline);
}

Result<> HostPeers::send_locked(HostPeer& pair, const PairMessage& message,
                                std::span<const int> fds, Deadline deadline) {
    auto sent = net::send_fds(pair.socket.get(), fds, encode(message), deadline);
    if (!sent && sent.error().rank == nobody) sent.error().rank = pair.peer;
    return sent;
}

// Sends new segments first, because the channel is in one of them.
Result<> HostPeers::announce(HostPeer& pair, const PairMessage& channel, Deadline deadline) {
    const std::lock_guard lock(pair.send_mutex);
    const SegmentTable& own = *arena_->segments();
    for (uint32_t& next = pair.segments_sent; next < own.count(); ++next) {
        const int fd = own.fd(next);
        const PairMessage segment{
            .kind = PairMessageKind::segment, .place = {.segment = next}, .bytes = own.bytes(next)};
        TUTTI_TRY(send_locked(pair, segment, {&fd, 1}, deadline));
    }
    return send_locked(pair, channel, {}, deadline);
}

Result<std::unique_ptr<Sender>> HostPeers::open(const std::shared_ptr<HostPeer>& pair,
                                                const ChannelId& id, Deadline deadline) {
    TUTTI_ASSIGN(auto space, pair->channels->open());
    const PairMessage channel{.kind = PairMessageKind::channel,
                              .comm = id.comm,
                              .lane = id.lane,
                              .place = space->block.place};
    auto sender = std::make_unique<MappedSender>(pair->channels, std::move(space),
                                                 MappedPeer{pair->doorbell, pair->life});
    if (auto sent = announce(*pair, channel, deadline); !sent)
        return wrap(std::move(sent).error(),
                    fmt::format("shm: opening lane {} to rank {}", id.lane, pair->peer));
    return sender;
}

void HostPeers::ready(const std::shared_ptr<HostPeer>& pair) {
    const std::lock_guard receive_lock(receive_mutex_);
    if (closed_) return;
    if (auto taken = handle_message(pair); !taken) lost(pair, taken.error());
}

Result<> HostPeers::handle_message(const std::shared_ptr<HostPeer>& pair) {
    TUTTI_ASSIGN(const bool any, has_message(pair->socket.get()));
    if (!any) return {};
    TUTTI_ASSIGN(auto frame, net::recv_fds(pair->socket.get(), max_frame_bytes,
                                           Deadline::after_ms(frame_timeout_ms)));
    TUTTI_ASSIGN(const PairMessage message, decode_pair_message(frame.body));
    switch (message.kind) {
        case PairMessageKind::doorbell:
            return handle_doorbell(*pair, std::move(frame.fds));
        case PairMessageKind::segment:
            return handle_segment(*pair, message, std::move(frame.fds));
        case PairMessageKind::channel:
            return handle_channel(*pair, message);
        case PairMessageKind::bye:
            pair->said_bye = true;
            return {};
    }
    return {};
}

Result<> HostPeers::handle_doorbell(HostPeer& pair, std::vector<UniqueFd> fds) {
    TUTTI_ASSIGN(auto doorbell, make_doorbell(std::move(fds)));
    const std::lock_guard lock(mutex_);
    if (pair.doorbell)
        return fail(Code::invalid, "shm: it sent a second doorbell").advice(same_version);
    pair.doorbell = std::move(doorbell);
    return {};
}

Result<> HostPeers::handle_segment(HostPeer& pair, const PairMessage& message,
                                   std::vector<UniqueFd> fds) {
    if (fds.size() != 1)
        return fail(Code::invalid, "shm: it sent {} file descriptors with a segment", fds.size())
            .advice(same_version);
    TUTTI_TRY(neighbours_->segments(pair.peer)->take(message.place.segment, std::move(fds[0]),
                                                     message.bytes));
    // The new segment may hold a message for a sleeping thread.
    ring_own();
    return {};
}

Result<> HostPeers::handle_channel(HostPeer& pair, const PairMessage& message) {
    const auto segments = neighbours_->segments(pair.peer);
    std::byte* memory = segments->at(message.place, mapped_channel_bytes);
    if (memory == nullptr || !pair.doorbell)
        return fail(Code::invalid,
                    "shm: it opened a channel at page {} of segment {}, where there is none",
                    message.place.page, message.place.segment)
            .advice(same_version);
    context_.sink->opened(
        {.peer = pair.peer, .comm = message.comm, .lane = message.lane},
        std::make_unique<MappedReceiver>(memory, segments, MappedPeer{pair.doorbell, pair.life}));
    return {};
}

void HostPeers::ring_own() const {
    ring_event_fd(context_.doorbell_fd);
}

void HostPeers::process_ended(Rank rank) {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& pair : peers_)
            if (pair->peer == rank) pair->life->gone.store(true, std::memory_order_release);
    }
    neighbours_->note_end(rank);
    ring_own();
}

// A message that was sent before the end of a process may announce a channel in its segments.
void HostPeers::forget_unless_connected(Rank rank) {
    const std::lock_guard lock(mutex_);
    const bool connected = std::any_of(peers_.begin(), peers_.end(),
                                       [&](const auto& pair) { return pair->peer == rank; });
    if (!connected) neighbours_->forget(rank);
}

void HostPeers::lost(const std::shared_ptr<HostPeer>& pair, const Error& error) {
    context_.reactor->remove(pair->socket.get());
    {
        const std::lock_guard lock(mutex_);
        std::erase(peers_, pair);
    }
    pair->life->gone.store(true, std::memory_order_release);
    forget_unless_connected(pair->peer);
    // Threads that sleep until that peer acts must wake up and check their channels' health.
    ring_own();
    const Rank culprit = is_shortage(error) ? context_.rank : pair->peer;
    const auto index = static_cast<std::size_t>(culprit);
    if (pair->said_bye || reported_[index]) return;
    reported_[index] = true;
    context_.sink->peer_lost(
        culprit, culprit == pair->peer
                     ? fmt::format("shm: process {}: {}", pair->pid, error.message)
                     : fmt::format("shm: it cannot take what rank {} passes to it: {}", pair->peer,
                                   error_text(error)));
}

void HostPeers::close(Deadline deadline) {
    const std::lock_guard receive_lock(receive_mutex_);
    if (closed_) return;
    closed_ = true;
    std::vector<std::shared_ptr<HostPeer>> peers;
    {
        const std::lock_guard lock(mutex_);
        peers.swap(peers_);
    }
    for (const auto& pair : peers) {
        context_.reactor->remove(pair->socket.get());
        // A peer whose socket buffer is full even for these few bytes has stopped for good, so this
        // does not wait long.
        const auto patience = Deadline::after_ms(deadline.left_ms(bye_timeout_ms) + 1);
        if (auto sent = send(*pair, {.kind = PairMessageKind::bye}, {}, patience); !sent)
            log::debug("shm: no bye to rank {}: {}", pair->peer, sent.error().message);
        pair->life->gone.store(true, std::memory_order_release);
        ::shutdown(pair->socket.get(), SHUT_RDWR);
    }
}

}  // namespace tutti::shm
