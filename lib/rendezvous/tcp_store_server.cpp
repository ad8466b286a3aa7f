#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/log.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "os/signals.h"
#include "os/thread.h"
#include "os/uninherited_fd.h"
#include "rendezvous/store_kinds.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/store_table.h"
#include "rendezvous/tcp_store.h"
#include "wait/event_fd.h"
#include "wait/reactor.h"

namespace tutti {
namespace {

constexpr std::size_t read_bytes = 64 * 1024;
// While a client does not read its replies, the server reads no more of its requests.
constexpr std::size_t unsent_limit_bytes = 4 * store_protocol::max_frame_bytes;

// The ports of this process's servers, with their jobs: each server serves a single job.
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
    /// nullopt: another process uses the port, for example the parent of this forked process.
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

// Runs on one thread, so it needs no locks. Only a connection's own handler or the server's end
// destroys it; any other failure marks it for the handler.
class Server final : public TcpStoreServer {
public:
    Server(uint16_t port, UniqueFd wake) : port_(port), wake_(std::move(wake)) {}

    Result<> run(UniqueFd listener, const Options& options);
    ~Server() override;
    uint16_t port() const override { return port_; }
    uint64_t turned_away() const override {
        return acceptor_->turned_away() + waiting_for_job_.load(std::memory_order_relaxed);
    }

private:
    struct ClientConnection {
        UninheritedFd fd;
        store_protocol::StoreHello hello;
        std::shared_ptr<StoreTable> table{};  // nullptr: its job is not open
        StoreTable::Client client{};
        std::list<ClientConnection>::iterator self{};
        Bytes in{};
        Bytes out{};
        std::size_t out_done = 0;
        bool broken = false;
        uint32_t events = EPOLLIN | EPOLLRDHUP;

        ClientConnection(UniqueFd socket, store_protocol::StoreHello introduced)
            : fd(std::move(socket)), hello(std::move(introduced)) {}
    };

    void serve();
    void welcome(UniqueFd fd, const Bytes& bytes);
    void enter(ClientConnection& connection);
    void open_job(ClientConnection& opener);
    void end_job(const ClientConnection& opener);
    void ready(ClientConnection& connection, uint32_t events);
    void close(ClientConnection& connection);
    bool receive(ClientConnection& connection);
    void answer_requests(ClientConnection& connection);
    void reply(ClientConnection& connection, const Bytes& frame);
    void flush(ClientConnection& connection);
    void watch(ClientConnection& connection);

    uint16_t port_;
    UniqueFd wake_;
    std::atomic<bool> stop_{false};
    Reactor reactor_;
    std::unique_ptr<net::Acceptor> acceptor_;
    // The open jobs. The server's own lasts as long as the server, any other as long as the
    // connection that opened it.
    std::map<std::string, std::shared_ptr<StoreTable>> jobs_;
    std::string own_job_;
    std::atomic<uint64_t> waiting_for_job_{0};  // connections
    std::list<ClientConnection> connections_;
    // Not on the thread's small stack.
    std::vector<std::byte> chunk_ = std::vector<std::byte>(read_bytes);
    Thread thread_;
};

Result<> Server::run(UniqueFd listener, const Options& options) {
    own_job_ = options.job;
    jobs_[own_job_] = std::make_shared<StoreTable>();
    TUTTI_TRY(reactor_.add(wake_.get(), EPOLLIN, [](uint32_t) {}));
    acceptor_ = std::make_unique<net::Acceptor>(
        reactor_, std::move(listener),
        net::AuthKey{.secret = options.secret,
                     .context = store_protocol::handshake_context(own_job_)},
        [this](UniqueFd fd, const Bytes& hello) { welcome(std::move(fd), hello); },
        net::Acceptor::Options{.any_job_context = std::string(store_protocol::any_job_context)});
    const NoSignals for_the_thread;
    TUTTI_ASSIGN(thread_, Thread::start("the store's thread", [this] { serve(); }));
    return {};
}

Server::~Server() {
    stop_.store(true, std::memory_order_relaxed);
    ring_event_fd(wake_.get());
    thread_.join();
    own_ports().remove(port_);
}

void Server::serve() {
    while (!stop_.load(std::memory_order_relaxed)) reactor_.poll(-1);
}

void Server::welcome(UniqueFd fd, const Bytes& bytes) {
    auto hello = store_protocol::decode_store_hello(bytes);
    if (!hello || hello->version != store_protocol::version) {
        log::warn(
            fail(Code::unsupported,
                 "store: refused a client that speaks version {} of the store's protocol, not {}",
                 hello ? hello->version : store_protocol::version, store_protocol::version)
                .advice("install the same version of tutti on all hosts"));
        return;
    }
    net::end_with_peers_host(fd.get());  // the job that it opened ends with the connection
    const int raw = fd.get();
    ClientConnection& connection = connections_.emplace_back(std::move(fd), *std::move(hello));
    connection.self = std::prev(connections_.end());
    connection.client.on_reply(
        [this, &connection](const Bytes& frame) { reply(connection, frame); });
    auto added = reactor_.add(raw, connection.events,
                              [this, &connection](uint32_t events) { ready(connection, events); });
    if (added) return enter(connection);
    log::warn(wrap(added.error(), "store: cannot serve a client"));
    connections_.pop_back();
}

// A client of a job that is not open learns which jobs are, and waits.
void Server::enter(ClientConnection& connection) {
    using store_protocol::JobEntry, store_protocol::Status;
    const auto& hello = connection.hello;
    const auto job = jobs_.find(hello.entry == JobEntry::own ? own_job_ : hello.job);
    if (hello.entry == JobEntry::own) {
        connection.table = job->second;
    } else if (hello.entry == JobEntry::open) {
        if (job == jobs_.end()) return open_job(connection);
        reply(connection, store_protocol::framed_reply(Status::taken, ""));
    } else if (job != jobs_.end()) {
        connection.table = job->second;
        reply(connection, store_protocol::framed_reply(Status::ok, own_job_));
    } else {
        std::string names;
        for (const auto& [name, table] : jobs_)
            names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
        waiting_for_job_.fetch_add(1, std::memory_order_relaxed);
        reply(connection, store_protocol::framed_reply(Status::missing, names));
        watch(connection);
    }
}

void Server::open_job(ClientConnection& opener) {
    const auto table = jobs_[opener.hello.job] = std::make_shared<StoreTable>();
    for (ClientConnection& connection : connections_) {
        if (connection.table || connection.hello.job != opener.hello.job) continue;
        connection.table = table;
        if (&connection != &opener) waiting_for_job_.fetch_sub(1, std::memory_order_relaxed);
        reply(connection, store_protocol::framed_reply(store_protocol::Status::ok, own_job_));
        watch(connection);
    }
}

// Ends the job's connections, as the end of a server of its own would. Their handlers close them.
void Server::end_job(const ClientConnection& opener) {
    jobs_.erase(opener.hello.job);
    for (const ClientConnection& connection : connections_)
        if (connection.table == opener.table) shutdown(connection.fd.get(), SHUT_RDWR);
}

void Server::ready(ClientConnection& connection, uint32_t events) {
    if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) connection.broken = true;
    if (!connection.broken && (events & EPOLLOUT) != 0) flush(connection);
    if (!connection.broken && (events & EPOLLIN) != 0) connection.broken = !receive(connection);
    if (!connection.broken && connection.table) answer_requests(connection);
    if (connection.broken) return close(connection);
    watch(connection);
}

void Server::close(ClientConnection& connection) {
    reactor_.remove(connection.fd.get());
    if (connection.table) {
        connection.table->drop(connection.client);
        if (connection.hello.entry == store_protocol::JobEntry::open) end_job(connection);
    }
    connections_.erase(connection.self);
}

// Reads one piece a turn, so that a client that sends without end does not delay other clients.
bool Server::receive(ClientConnection& connection) {
    const ssize_t got = recv(connection.fd.get(), chunk_.data(), chunk_.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    connection.in.insert(connection.in.end(), chunk_.begin(), chunk_.begin() + got);
    return got > 0;
}

void Server::answer_requests(ClientConnection& connection) {
    std::size_t at = 0;
    while (!connection.client.waits() && !connection.broken &&
           connection.out.size() - connection.out_done < unsent_limit_bytes) {
        const auto taken =
            connection.table->take(connection.client, ByteView(connection.in).subspan(at));
        connection.broken = connection.broken || !taken;
        if (taken.value_or(0) == 0) break;
        at += *taken;
    }
    connection.in.erase(connection.in.begin(),
                        connection.in.begin() + static_cast<std::ptrdiff_t>(at));
}

void Server::reply(ClientConnection& connection, const Bytes& frame) {
    connection.out.insert(connection.out.end(), frame.begin(), frame.end());
    flush(connection);
    if (!connection.client.waits()) return;
    // Another client's request has answered this client's get. The handler of this connection
    // continues with the requests after the get, or closes it.
    connection.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    reactor_.modify(connection.fd.get(), connection.events);
}

void Server::flush(ClientConnection& connection) {
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

// While the client must not send more requests, or its job is not open, the server only waits for
// the end of the connection: reading would accumulate its requests, and watching a readable socket
// without reading would spin.
void Server::watch(ClientConnection& connection) {
    const std::size_t unsent = connection.out.size() - connection.out_done;
    uint32_t events = EPOLLRDHUP;
    if (connection.table && !connection.client.waits() && unsent < unsent_limit_bytes)
        events |= EPOLLIN;
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
        if (const auto job = own_ports().job_at(at.port); job && error.sys_errno == EADDRINUSE) {
            error.message += fmt::format("; this process serves job '{}' there", *job);
            error.advice =
                "give each job of a process a store of its own: another port, or file:///dir";
        }
        return tl::unexpected(std::move(error));
    }
    TUTTI_ASSIGN(const uint16_t port, net::local_port(listener->get()));
    TUTTI_ASSIGN(UniqueFd wake, make_event_fd());
    auto server = std::make_unique<Server>(port, std::move(wake));
    TUTTI_TRY(server->run(std::move(*listener), options));
    own_ports().add(port, options.job);
    return server;
}

}  // namespace tutti
