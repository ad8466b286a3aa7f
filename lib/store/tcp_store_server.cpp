#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/event_fd.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/thread.h"
#include "base/uninherited_fd.h"
#include "net/acceptor.h"
#include "net/reactor.h"
#include "net/socket.h"
#include "store/store_kinds.h"
#include "store/store_protocol.h"
#include "store/tcp_store.h"

namespace tutti {
namespace {

using store_protocol::Op;
using store_protocol::Request;
using store_protocol::Status;

constexpr std::size_t read_bytes = 64 * 1024;
// A client that does not read its replies is not read from, either.
constexpr std::size_t unsent_limit_bytes = 4 * store_protocol::max_frame_bytes;
constexpr std::size_t store_limit_bytes = std::size_t{1} << 30;

// The ports of this process's servers, and whose they are: one serves a single job.
class OwnPorts {
public:
    void add(uint16_t port, const std::string& job) {
        const std::lock_guard lock(mutex_);
        ports_[port] = {::getpid(), job};
    }
    void remove(uint16_t port) {
        const std::lock_guard lock(mutex_);
        ports_.erase(port);
    }
    /// Nothing, if the port is another process's, be it the one that this was forked from.
    std::optional<std::string> job_at(uint16_t port) {
        const std::lock_guard lock(mutex_);
        const auto found = ports_.find(port);
        if (found == ports_.end() || found->second.first != ::getpid()) return std::nullopt;
        return found->second.second;
    }

private:
    std::mutex mutex_;
    std::map<uint16_t, std::pair<pid_t, std::string>> ports_;
};
OwnPorts& own_ports() {
    static auto* ports = new OwnPorts;
    return *ports;
}

// One thread, so nothing here is locked. A connection is destroyed only by its own handler or by
// the server's end; everything else that goes wrong with it waits for the handler.
class Server final : public TcpStoreServer {
public:
    Server(uint16_t port, UniqueFd wake) : port_(port), wake_(std::move(wake)) {}

    Result<> run(UniqueFd listener, net::AuthKey key);
    ~Server() override;
    uint16_t port() const override { return port_; }
    uint64_t turned_away() const override { return acceptor_->turned_away(); }

private:
    struct Connection {
        UninheritedFd fd;
        std::list<Connection>::iterator self{};
        Bytes in{};
        Bytes out{};
        std::size_t out_done = 0;
        std::string parked_key{};
        std::optional<Request> will{};
        bool parked = false;
        bool broken = false;
        uint32_t events = EPOLLIN | EPOLLRDHUP;
    };

    void serve();
    void welcome(UniqueFd fd, const Bytes& hello);
    void ready(Connection& connection, uint32_t events);
    void close(Connection& connection);
    bool receive(Connection& connection);
    void answer_requests(Connection& connection);
    void answer(Connection& connection, Request request);
    void count(Connection& connection, const Request& request);
    bool put(Connection& connection, const Request& request);
    bool keep(const std::string& key, std::string value);
    void execute(const Request& will);
    void publish(const std::string& key);
    void reply(Connection& connection, Status status, std::string_view value);
    void flush(Connection& connection);
    void watch(Connection& connection);

    uint16_t port_;
    UniqueFd wake_;
    std::atomic<bool> stop_{false};
    Reactor reactor_;
    std::unique_ptr<net::Acceptor> acceptor_;
    std::list<Connection> connections_;
    std::unordered_map<std::string, std::string> values_;
    std::unordered_map<std::string, std::vector<Connection*>> parked_;
    std::size_t stored_bytes_ = 0;
    std::vector<std::byte> chunk_ = std::vector<std::byte>(read_bytes);  // not on a small stack
    Thread thread_;
};

Result<> Server::run(UniqueFd listener, net::AuthKey key) {
    TUTTI_TRY(reactor_.add(wake_.get(), EPOLLIN, [](uint32_t) {}));
    acceptor_ = std::make_unique<net::Acceptor>(
        reactor_, std::move(listener), std::move(key),
        [this](UniqueFd fd, const Bytes& hello) { welcome(std::move(fd), hello); },
        net::Acceptor::Options{});
    const NoSignals for_the_thread;
    TUTTI_ASSIGN(thread_, Thread::start("the store's thread", [this] { serve(); }));
    return {};
}

Server::~Server() {
    stop_.store(true, std::memory_order_relaxed);
    eventfd_write(wake_.get(), 1);
    thread_.join();
    own_ports().remove(port_);
}

void Server::serve() {
    while (!stop_.load(std::memory_order_relaxed)) reactor_.poll(-1);
}

void Server::welcome(UniqueFd fd, const Bytes& hello) {
    ByteReader reader(hello);
    const auto version = reader.get<uint32_t>();
    if (!reader.at_end() || version != store_protocol::version) {
        log::warn("store: a client speaks version {} of the protocol, not {}", version,
                  store_protocol::version);
        return;
    }
    const int on = 1;  // a host that vanished does not keep its connection for ever
    setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    const int raw = fd.get();
    connections_.push_back(Connection{.fd = UninheritedFd(std::move(fd))});
    Connection& connection = connections_.back();
    connection.self = std::prev(connections_.end());
    auto added = reactor_.add(raw, connection.events,
                              [this, &connection](uint32_t events) { ready(connection, events); });
    if (added) return;
    log::warn("store: {}", added.error().message);
    connections_.pop_back();
}

void Server::ready(Connection& connection, uint32_t events) {
    if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) connection.broken = true;
    if (!connection.broken && (events & EPOLLOUT) != 0) flush(connection);
    if (!connection.broken && (events & EPOLLIN) != 0) connection.broken = !receive(connection);
    if (!connection.broken) answer_requests(connection);
    if (connection.broken) return close(connection);
    watch(connection);
}

void Server::close(Connection& connection) {
    if (connection.parked) {
        const auto waiting = parked_.find(connection.parked_key);
        std::erase(waiting->second, &connection);
        if (waiting->second.empty()) parked_.erase(waiting);
    }
    reactor_.remove(connection.fd.get());
    const auto will = std::move(connection.will);
    connections_.erase(connection.self);
    if (will) execute(*will);
}

// What the client has said since does not count: it may have been killed in the middle.
void Server::execute(const Request& will) {
    if (values_.contains(will.key)) return;
    const Bytes time = ByteWriter().put(wall_clock_s()).take();
    if (!keep(will.key, std::string(as_text(time)) + will.value))
        log::warn("store: no room for a client's will");
}

// One piece a turn, so that a client that sends without end does not keep the others waiting.
bool Server::receive(Connection& connection) {
    const ssize_t got = recv(connection.fd.get(), chunk_.data(), chunk_.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    connection.in.insert(connection.in.end(), chunk_.begin(), chunk_.begin() + got);
    return got > 0;
}

void Server::answer_requests(Connection& connection) {
    std::size_t at = 0;
    while (!connection.parked && !connection.broken &&
           connection.out.size() - connection.out_done < unsent_limit_bytes) {
        const ByteView left = ByteView(connection.in).subspan(at);
        ByteReader reader(left);
        const auto bytes = reader.get<uint32_t>();
        if (!reader.ok()) break;
        if (bytes > store_protocol::max_frame_bytes) {
            log::debug("store: dropping a client that announces a request of {} bytes", bytes);
            connection.broken = true;
            break;
        }
        if (left.size() - sizeof bytes < bytes) break;
        Request request;
        if (!store_protocol::decode_request(left.subspan(sizeof bytes, bytes), request)) {
            log::debug("store: dropping a client that sent a malformed request");
            connection.broken = true;
            break;
        }
        at += sizeof bytes + bytes;
        answer(connection, std::move(request));
    }
    connection.in.erase(connection.in.begin(),
                        connection.in.begin() + static_cast<std::ptrdiff_t>(at));
}

void Server::answer(Connection& connection, Request request) {
    const auto found = values_.find(request.key);
    switch (request.op) {
        case Op::set:
            if (put(connection, request)) reply(connection, Status::ok, "");
            return;
        case Op::claim:
            if (found != values_.end()) return reply(connection, Status::taken, found->second);
            if (put(connection, request)) reply(connection, Status::ok, "");
            return;
        case Op::get:
            if (found != values_.end()) return reply(connection, Status::ok, found->second);
            parked_[request.key].push_back(&connection);
            connection.parked_key = std::move(request.key);
            connection.parked = true;
            return;
        case Op::look:
            if (found == values_.end()) return reply(connection, Status::missing, "");
            return reply(connection, Status::ok, found->second);
        case Op::remove:
            if (found != values_.end()) {
                stored_bytes_ -= found->first.size() + found->second.size();
                values_.erase(found);
            }
            return reply(connection, Status::ok, "");
        case Op::add:
            return count(connection, request);
        case Op::will:
            connection.will.reset();
            if (!request.key.empty()) connection.will = std::move(request);
            return reply(connection, Status::ok, "");
    }
}

// Counters are 8-byte values like any other, so get and remove work on them.
void Server::count(Connection& connection, const Request& request) {
    int64_t sum = 0, amount = 0;
    const auto found = values_.find(request.key);
    const bool known = found != values_.end();
    if (request.value.size() != sizeof amount || (known && found->second.size() != sizeof sum))
        return reply(connection, Status::refused, "add works on 8-byte counters only");
    std::memcpy(&amount, request.value.data(), sizeof amount);
    if (known) std::memcpy(&sum, found->second.data(), sizeof sum);
    sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(amount));
    const std::string value(reinterpret_cast<const char*>(&sum), sizeof sum);
    if (put(connection, {request.op, request.key, value})) reply(connection, Status::ok, value);
}

bool Server::put(Connection& connection, const Request& request) {
    if (keep(request.key, request.value)) return true;
    reply(connection, Status::refused,
          fmt::format("the store holds {} bytes, its limit", stored_bytes_));
    return false;
}

// False: there is no room.
bool Server::keep(const std::string& key, std::string value) {
    const auto found = values_.find(key);
    const std::size_t before =
        found == values_.end() ? 0 : found->first.size() + found->second.size();
    const std::size_t after = stored_bytes_ - before + key.size() + value.size();
    if (after > store_limit_bytes) return false;
    stored_bytes_ = after;
    values_.insert_or_assign(key, std::move(value));
    publish(key);
    return true;
}

void Server::publish(const std::string& key) {
    const auto waiting = parked_.extract(key);
    if (waiting.empty()) return;
    for (Connection* connection : waiting.mapped()) {
        connection->parked = false;
        reply(*connection, Status::ok, values_.at(key));
        // Its handler goes on with what it sent after the get, or closes it.
        connection->events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
        reactor_.modify(connection->fd.get(), connection->events);
    }
}

void Server::reply(Connection& connection, Status status, std::string_view value) {
    ByteWriter frame;
    frame.put_text(as_text(store_protocol::encode_reply(status, value)));
    const Bytes bytes = frame.take();
    connection.out.insert(connection.out.end(), bytes.begin(), bytes.end());
    flush(connection);
}

void Server::flush(Connection& connection) {
    while (connection.out_done < connection.out.size()) {
        const ssize_t sent = send(connection.fd.get(), connection.out.data() + connection.out_done,
                                  connection.out.size() - connection.out_done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) connection.broken = true;
            break;
        }
        connection.out_done += static_cast<std::size_t>(sent);
    }
    connection.out.erase(connection.out.begin(),
                         connection.out.begin() + static_cast<std::ptrdiff_t>(connection.out_done));
    connection.out_done = 0;
}

// While it must not send more requests, only its going away is of interest: reading on would pile
// up what it sends, and not reading would spin on a readable socket.
void Server::watch(Connection& connection) {
    const std::size_t unsent = connection.out.size() - connection.out_done;
    uint32_t events = EPOLLRDHUP;
    if (!connection.parked && unsent < unsent_limit_bytes) events |= EPOLLIN;
    if (unsent > 0) events |= EPOLLOUT;
    if (events == connection.events) return;
    connection.events = events;
    reactor_.modify(connection.fd.get(), events);
}

}  // namespace

Result<std::unique_ptr<TcpStoreServer>> TcpStoreServer::start(const Options& options) {
    const net::HostPort at{.host = options.host, .port = options.port};
    TUTTI_TRY(check_exposure(at, options.secret, options.insecure, options.deadline));
    auto listener = net::listen_tcp(at, options.deadline);
    if (!listener) {
        Error error = std::move(listener).error();
        if (const auto job = own_ports().job_at(at.port); job && error.sys_errno == EADDRINUSE)
            error.message += fmt::format(
                ": this process serves job '{}' there. Another job of a process needs a store of "
                "its own: another port, or file:///dir",
                *job);
        return tl::unexpected(std::move(error));
    }
    TUTTI_ASSIGN(const uint16_t port, net::local_port(listener->get()));
    TUTTI_ASSIGN(UniqueFd wake, make_event_fd());
    auto server = std::make_unique<Server>(port, std::move(wake));
    TUTTI_TRY(server->run(
        std::move(*listener),
        {.secret = options.secret, .context = store_protocol::handshake_context(options.job)}));
    own_ports().add(port, options.job);
    return server;
}

}  // namespace tutti
