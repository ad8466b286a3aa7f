// The TCP transport: a listener, and one connection per peer, made at its first use.
//
// One connection serves both directions: the kernel then acknowledges a message with the next one
// in the opposite direction, and our credits travel the same way. If two ranks call each other at
// once, the lower rank's connection is used.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/serving.h"
#include "net/socket.h"
#include "transports/catalog.h"
#include "transports/tcp/connection.h"

namespace tutti {
namespace {

using tcp::Connection;
using ConnectionPtr = std::shared_ptr<Connection>;

// progress() polls up to this many sockets directly, which is fastest; with more it asks epoll.
constexpr std::size_t direct_limit = 4;
// The most connections that one rank may have made to this rank: it needs one.
constexpr std::ptrdiff_t accepted_limit = 4;
constexpr int close_poll_ms = 2;
constexpr int64_t gone_patience_ms = 40;  // at close, for bytes to a peer that is gone
// If two ranks connect to each other at once, the rank whose attempt is dropped waits this long for
// the other's connection before it tries again.
constexpr int64_t crossing_ms = 500;

bool is_loopback(std::string_view host) {
    return host.starts_with("127.") || host == "::1" || host == "localhost";
}

ErrorResult closed_error(Rank peer) {
    return fail_rank(Code::aborted, peer, "this rank has left the job")
        .advice("make a new communicator");
}

class TcpTransport final : public Transport {
public:
    explicit TcpTransport(const TransportContext& context)
        : context_(context), events_(context.sink) {
        capabilities_.usual_message_bytes = tcp::max_message_bytes;
        capabilities_.max_message_bytes =
            std::clamp(context.window_bytes / credits_per_channel, tcp::max_message_bytes,
                       tcp::max_far_message_bytes);
        capabilities_.over_ip = true;
        capabilities_.credits = credits_per_channel;
        capabilities_.latency_us = 4;
        capabilities_.bandwidth_gbs = 2.5;
    }
    ~TcpTransport() override { close(Deadline::after_ms(1)); }

    std::string_view name() const override { return "tcp"; }
    const Capabilities& capabilities() const override { return capabilities_; }
    Result<> listen() override;
    std::string address() const override { return address_; }
    bool may_reach(const PeerAddress& peer) const override;
    Result<std::unique_ptr<Sender>> open(const ChannelId& id, const PeerAddress& peer,
                                         Deadline deadline) override;
    void retire(uint32_t comm) override { retired_.insert(comm); }
    void peer_gone(Rank peer) override {
        const std::lock_guard lock(mutex_);
        gone_.insert(peer);
        set_direct();
    }
    void progress() override;
    void close(Deadline deadline) override;

private:
    net::AuthKey key() const { return {context_.secret, "tcp/" + context_.job}; }
    bool usable(const net::HostPort& address, const PeerAddress& peer) const;
    Result<ConnectionPtr> handshake(const PeerAddress& peer, Deadline deadline);
    template <typename Over>
    void wait_until(std::unique_lock<std::mutex>& lock, Deadline deadline, Over over);
    /// A peer's answer to our hello: it uses this connection, or its own connection to us is in
    /// progress, and this one was closed.
    struct Introduction {
        tcp::Answer answer = tcp::Answer::crossing;
        UniqueFd fd;
    };
    Result<Introduction> call(const PeerAddress& peer, Deadline deadline) const;
    Result<Introduction> call_once(const PeerAddress& peer, Deadline deadline) const;
    Result<Introduction> introduce(UniqueFd fd, Deadline deadline) const;
    ConnectionPtr find(Rank peer);
    // The caller holds the lock.
    ConnectionPtr find_locked(Rank peer) const;
    void set_direct();
    Result<ConnectionPtr> add(UniqueFd fd, Rank peer);
    std::optional<tcp::Answer> answer(Rank peer) const;

    void accepted(UniqueFd fd, const Bytes& hello);
    static void send_goodbye(int fd);
    static bool send_answer(int fd, tcp::Answer answer);

    const TransportContext context_;
    Capabilities capabilities_;
    std::string address_;
    bool only_loopback_ = false;
    std::unique_ptr<net::Acceptor> acceptor_;
    Retired retired_;
    SinkEvents events_;

    std::mutex mutex_;  // guards the members below
    std::condition_variable changed_;
    std::set<Rank> calling_;  // so that two threads that open channels to one peer make one
                              // connection
    std::set<Rank> called_;   // peers with a connection that this rank made
    std::vector<ConnectionPtr> connections_;  // kept until close: progress() reads without the lock
    std::set<Rank> gone_;                     // found dead by other ranks
    bool closed_ = false;

    std::array<std::atomic<Connection*>, direct_limit> direct_{};
    std::atomic<std::size_t> count_{0};  // of connections that have not ended
};

std::vector<net::HostPort> parse_addresses(std::string_view text) {
    std::vector<net::HostPort> out;
    while (!text.empty()) {
        const std::size_t comma = text.find(',');
        if (auto address = net::parse_host_port(text.substr(0, comma)))
            out.push_back(std::move(*address));
        text = comma == text.npos ? std::string_view{} : text.substr(comma + 1);
    }
    return out;
}

Result<> TcpTransport::listen() {
    TUTTI_ASSIGN(
        const std::string host,
        net::choose_address({context_.iface, context_.loopback_only, context_.usual_address}));
    TUTTI_ASSIGN(UniqueFd listener, net::listen_tcp({host, 0}));
    TUTTI_ASSIGN(const uint16_t port, net::local_port(listener.get()));
    address_ = net::format_host_port({host, port});
    only_loopback_ = is_loopback(host);
    acceptor_ = std::make_unique<net::Acceptor>(
        *context_.reactor, std::move(listener), key(),
        [this](UniqueFd fd, const Bytes& hello) { accepted(std::move(fd), hello); },
        net::Acceptor::Options{});
    return {};
}

// ---- reaching peers --------------------------------------------------------------------------

// A loopback address is valid only on its own host.
bool TcpTransport::usable(const net::HostPort& address, const PeerAddress& peer) const {
    // If this rank listens on loopback only, all its peers are on this machine, even if they act as
    // several hosts.
    return peer.host_id == context_.host_id || !is_loopback(address.host) || only_loopback_;
}

bool TcpTransport::may_reach(const PeerAddress& peer) const {
    const auto addresses = parse_addresses(peer.address);
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const net::HostPort& address) { return usable(address, peer); });
}

Result<std::unique_ptr<Sender>> TcpTransport::open(const ChannelId& id, const PeerAddress& peer,
                                                   Deadline deadline) {
    if (const ConnectionPtr connection = find(peer.rank)) return connection->open(id);
    auto connected = handshake(peer, deadline);
    if (connected) return (*connected)->open(id);
    Error error = std::move(connected).error();
    error.rank = peer.rank;
    return wrap(std::move(error),
                fmt::format("connecting to rank {} at '{}' by TCP", peer.rank, peer.address));
}

/// A lower rank that cannot reach this rank gives up after some time; then this rank's own call
/// succeeds.
Result<ConnectionPtr> TcpTransport::handshake(const PeerAddress& peer, Deadline deadline) {
    const Rank rank = peer.rank;
    std::unique_lock lock(mutex_);
    for (;;) {
        wait_until(lock, deadline, [&] { return !calling_.contains(rank) || find_locked(rank); });
        if (ConnectionPtr connection = find_locked(rank)) return connection;
        if (closed_) return closed_error(rank);
        if (calling_.contains(rank))
            return fail_rank(Code::timeout, rank,
                             "another thread of this rank is still connecting");
        calling_.insert(rank);
        lock.unlock();
        auto called = call(peer, deadline);
        lock.lock();
        calling_.erase(rank);
        changed_.notify_all();
        if (!called) return tl::unexpected(std::move(called).error());
        if (called->answer == tcp::Answer::taken) {
            called_.insert(rank);
            return add(std::move(called->fd), rank);
        }
        // Never 0, which would mean no limit.
        const int64_t limit_ms = std::max<int64_t>(1, deadline.left_ms(crossing_ms));
        wait_until(lock, Deadline::after_ms(limit_ms), [&] { return find_locked(rank); });
        if (deadline.passed() && !find_locked(rank))
            return fail_rank(Code::timeout, rank,
                             "rank {} is connecting to this rank at {}, but its connection did not "
                             "arrive",
                             rank, address_)
                .advice(
                    "make {} reachable from the host of rank {}: open the firewall, or set "
                    "TUTTI_IFACE to the network that all hosts share",
                    address_, rank);
    }
}

/// Also returns when the transport is closed. With manual progress this thread must accept
/// connections itself, so it serves the reactor between waits.
template <typename Over>
void TcpTransport::wait_until(std::unique_lock<std::mutex>& lock, Deadline deadline, Over over) {
    constexpr auto turn = std::chrono::milliseconds(1);
    const auto ends = [&] { return closed_ || over(); };
    while (!changed_.wait_for(lock, turn, ends) && !deadline.passed() && !net::wait_cancelled()) {
        lock.unlock();
        net::poll_serving(nullptr, 0);
        lock.lock();
    }
}

Result<TcpTransport::Introduction> TcpTransport::call(const PeerAddress& peer,
                                                      Deadline deadline) const {
    for (net::Redial redial;;) {
        auto called = call_once(peer, deadline);
        if (called || !redial.again(called.error(), deadline)) return called;
    }
}

Result<TcpTransport::Introduction> TcpTransport::call_once(const PeerAddress& peer,
                                                           Deadline deadline) const {
    Error last = fail_rank(Code::unsupported, peer.rank,
                           "rank {} published no address that this rank can use", peer.rank)
                     .advice(
                         "set TUTTI_IFACE to the network that all hosts share, and TUTTI_SECRET on "
                         "every rank")
                     .value();
    for (const net::HostPort& address : parse_addresses(peer.address)) {
        if (!usable(address, peer)) continue;
        auto fd = net::connect_tcp(address, {.deadline = deadline, .keep_trying = false});
        if (fd) return introduce(std::move(*fd), deadline);
        last = std::move(fd).error();
    }
    return tl::unexpected(std::move(last));
}

Result<TcpTransport::Introduction> TcpTransport::introduce(UniqueFd fd, Deadline deadline) const {
    const Bytes hello = ByteWriter().put(tcp::protocol_version).put(context_.rank).take();
    TUTTI_TRY(net::introduce(fd.get(), key(), hello, deadline));
    tcp::Answer answer{};
    const auto heard =
        net::recv_all(fd.get(), std::as_writable_bytes(std::span(&answer, 1)), deadline);
    if (!heard && heard.error().code == Code::peer_lost)
        return fail(Code::peer_lost, "it closed the connection when this rank introduced itself")
            .advice(
                "check that its process still runs, and install the same version of tutti on every "
                "host");
    if (!heard) return tl::unexpected(heard.error());
    if (answer == tcp::Answer::taken) return Introduction{.answer = answer, .fd = std::move(fd)};
    if (answer == tcp::Answer::crossing) return Introduction{};
    return fail(Code::auth, "it sent the unknown answer {} when this rank introduced itself",
                static_cast<int>(answer))
        .advice("install the same version of tutti on every host");
}

ConnectionPtr TcpTransport::find(Rank peer) {
    const std::lock_guard lock(mutex_);
    return find_locked(peer);
}

ConnectionPtr TcpTransport::find_locked(Rank peer) const {
    const auto found = std::find_if(
        connections_.begin(), connections_.end(),
        [&](const ConnectionPtr& c) { return c->peer() == peer && c->health() == Code::ok; });
    return found == connections_.end() ? nullptr : *found;
}

Result<ConnectionPtr> TcpTransport::add(UniqueFd fd, Rank peer) {
    if (closed_) return closed_error(peer);
    net::bound_if_local(fd.get());
    const auto connection = std::make_shared<Connection>(
        std::move(fd), Connection::Options{.rank = context_.rank,
                                           .peer = peer,
                                           .doorbell_fd = context_.doorbell_fd,
                                           .data_reactor = context_.data_reactor,
                                           .retired = &retired_,
                                           .unsent = context_.unsent,
                                           .events = &events_,
                                           .max_message_bytes = capabilities_.max_message_bytes});
    TUTTI_TRY(connection->watch());
    connections_.push_back(connection);
    set_direct();
    changed_.notify_all();
    return connection;
}

// Connections that have ended need no polling. progress() may still read their pointers, since no
// connection is destroyed before the transport.
void TcpTransport::set_direct() {
    std::size_t alive = 0;
    for (const ConnectionPtr& connection : connections_) {
        if (connection->health() != Code::ok) continue;
        if (alive < direct_limit) direct_[alive].store(connection.get(), std::memory_order_release);
        ++alive;
    }
    count_.store(alive, std::memory_order_release);
}

// Without a Connection, because no other message follows.
void TcpTransport::send_goodbye(int fd) {
    tcp::Header bye;
    bye.magic = tcp::Header::magic_of(tcp::Kind::bye);
    if (!send_answer(fd, tcp::Answer::taken) ||
        ::send(fd, &bye, sizeof bye, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        log::debug("tcp: no goodbye: {}", std::strerror(errno));
}

// A new socket's buffer has room for it.
bool TcpTransport::send_answer(int fd, tcp::Answer answer) {
    return ::send(fd, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof answer;
}

/// nullopt: refuses the connection.
std::optional<tcp::Answer> TcpTransport::answer(Rank peer) const {
    const bool ours = calling_.contains(peer) || (called_.contains(peer) && find_locked(peer));
    if (ours && context_.rank < peer) return tcp::Answer::crossing;
    const auto same = std::count_if(
        connections_.begin(), connections_.end(),
        [&](const ConnectionPtr& c) { return c->peer() == peer && c->health() == Code::ok; });
    if (same < accepted_limit) return tcp::Answer::taken;
    log::warn(fail_rank(Code::auth, peer,
                        "refused a data connection of rank {}, which has {} already", peer, same)
                  .advice("give each process of the job a TUTTI_RANK of its own")
                  .on(context_.rank));
    return std::nullopt;
}

void TcpTransport::accepted(UniqueFd fd, const Bytes& hello) {
    ByteReader in(hello);
    const auto version = in.get<uint32_t>();
    const auto rank = in.get<Rank>();
    if (!in.at_end() || version != tcp::protocol_version || rank < 0 || rank >= context_.size) {
        log::warn(fail(Code::unsupported,
                       "refused a data connection with version {} of the protocol (this rank has "
                       "version {}) that claims to be rank {} of {}",
                       version, tcp::protocol_version, rank, context_.size)
                      .advice("install the same version of tutti on all hosts, and give all ranks "
                              "the same TUTTI_SIZE")
                      .on(context_.rank));
        return;
    }
    const std::lock_guard lock(mutex_);
    // A rank that is shutting down still accepts connections; it answers with a goodbye so that the
    // caller does not report a lost peer.
    if (closed_) return send_goodbye(fd.get());
    const auto said = answer(rank);
    if (!said || !send_answer(fd.get(), *said) || *said == tcp::Answer::crossing) return;
    if (const auto added = add(std::move(fd), rank); !added) {
        const auto doing = fmt::format("accepting a data connection of rank {}", rank);
        log::warn(wrap(added.error(), doing).on(context_.rank));
    }
}

// ---- running ---------------------------------------------------------------------------------

void TcpTransport::progress() {
    const std::size_t count = count_.load(std::memory_order_acquire);
    if (count > direct_limit) {
        context_.data_reactor->poll(0);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) direct_[i].load(std::memory_order_acquire)->progress();
}

void TcpTransport::close(Deadline deadline) {
    std::vector<ConnectionPtr> open;
    std::set<Rank> given_up;
    {
        const std::lock_guard lock(mutex_);
        if (std::exchange(closed_, true)) return;
        open = connections_;
        given_up = gone_;
    }
    changed_.notify_all();
    const auto patience = deadline.within_ms(gone_patience_ms);
    const auto all = open;
    for (const ConnectionPtr& connection : all) connection->begin_close(deadline);
    std::vector<pollfd> fds;
    for (;;) {
        std::erase_if(open, [&](const ConnectionPtr& c) {
            return c->close_step() || (patience.passed() && given_up.count(c->peer()) > 0);
        });
        if (open.empty() || deadline.passed()) break;
        fds.clear();
        for (const ConnectionPtr& c : open)
            fds.push_back({.fd = c->fd(), .events = POLLIN, .revents = 0});
        ::poll(fds.data(), fds.size(), static_cast<int>(deadline.left_ms(close_poll_ms)));
    }
    for (const ConnectionPtr& connection : all) connection->end_close();
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TransportContext& context) {
    return std::make_unique<TcpTransport>(context);
}

}  // namespace tutti
