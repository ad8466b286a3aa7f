#include "rendezvous/tcp_store.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <optional>
#include <vector>

#include "base/errno_class.h"
#include "base/log.h"
#include "net/acceptor.h"
#include "net/serving.h"
#include "net/socket.h"
#include "os/uninherited_fd.h"
#include "rendezvous/store_kinds.h"
#include "rendezvous/store_protocol.h"

namespace tutti {
namespace {

using store_protocol::JobEntry;
using store_protocol::Status;
using store_protocol::StoreOp;

struct Reply {
    Status status = Status::refused;
    std::string value;
};

Result<Reply> receive_reply(int fd, Deadline deadline) {
    TUTTI_ASSIGN(const Bytes body, net::recv_frame(fd, store_protocol::max_frame_bytes, deadline));
    ByteReader reader(body);
    Reply reply;
    reply.status = reader.get_enum(Status::ok, Status::missing);
    reply.value = reader.get_text(store_protocol::max_frame_bytes);
    if (!reader.at_end())
        return fail(Code::system, "the store sent a malformed reply of {} bytes", body.size())
            .advice("install the same version of tutti on all hosts");
    return reply;
}

bool answers(int fd, Deadline deadline) {
    pollfd answer{.fd = fd, .events = POLLIN, .revents = 0};
    while (!deadline.passed() && !net::wait_cancelled())
        if (net::poll_serving(&answer, static_cast<int>(deadline.left_ms(1000))) > 0) return true;
    return false;
}

constexpr int64_t gone_ms = 700;       // how long to retry a server that closed the connection
constexpr int64_t withdraw_ms = 1000;  // to wait for the server's answer
constexpr int64_t open_ms = 2000;      // for a server that has the port to open a job
constexpr int64_t tell_job_ms = 3000;  // of waiting for a job, until the log says so

// The server executes the will when this connection ends, so no forked child may keep it open.
class TcpWill final : public Will {
public:
    explicit TcpWill(UniqueFd fd) : fd_(std::move(fd)) {}
    // Waits for the answer: if the connection ended before the server read the request, the server
    // would execute the will.
    ~TcpWill() override {
        const Deadline soon = Deadline::after_ms(withdraw_ms);
        const Bytes request = store_protocol::encode_request(StoreOp::will, "", "");
        if (net::send_frame(fd_.get(), request, soon))
            (void)net::recv_frame(fd_.get(), store_protocol::max_frame_bytes, soon);
    }

private:
    UninheritedFd fd_;
};

class TcpStore final : public Store {
public:
    TcpStore(const StoreOptions& options, net::HostPort at, std::unique_ptr<TcpStoreServer> server)
        : at_(std::move(at)),
          secret_(options.secret),
          job_(options.job),
          hosted_(options.hosted),
          host_rank_(options.hosted ? options.server : 0),
          in_job_(options.in_job),
          name_("tcp://" + net::format_host_port(at_)),
          server_(std::move(server)) {}

    /// keep_trying: the server may not have started yet.
    Result<> reach(Deadline deadline, bool keep_trying);
    /// Opens the job at a server of another job, until this process ends. errno EADDRINUSE: the job
    /// is open there already.
    Result<> open_job(Deadline deadline);

    Result<> set(const std::string& key, std::string_view value, Deadline deadline) override;
    Result<std::string> get(const std::string& key, Deadline deadline) override;
    Result<std::optional<std::string>> try_get(const std::string& key, Deadline deadline) override;
    Result<bool> claim(const std::string& key, std::string_view value, std::string& existing,
                       Deadline deadline) override;
    Result<> remove(const std::string& key, Deadline deadline) override;
    Result<std::unique_ptr<Will>> set_will(const std::string& key, std::string_view value,
                                           Deadline deadline) override;
    bool forgets() const override { return serves(); }
    std::string describe() const override { return name_; }
    std::string suspicion() const override;

private:
    /// Whether the job's part of the store ends with this process.
    bool serves() const { return server_ || opening_; }
    struct JobConnection {
        UniqueFd fd;
        std::string server_job;  // empty: the server serves one job, this one
    };
    Result<JobConnection> connect(Deadline deadline, bool keep_trying);
    Result<> introduce(int fd, JobEntry entry, Deadline deadline) const;
    Result<std::optional<std::string>> await_job(int fd, Deadline deadline, bool keep_trying) const;
    Result<UniqueFd> take_connection(Deadline deadline);
    Result<Reply> ask(StoreOp op, const std::string& key, std::string_view value,
                      Deadline deadline);
    static Result<Reply> ask_on(int fd, ByteView request, Deadline deadline);
    Error gone(const Error& cause) const;
    /// The process that serves the store, for messages.
    std::string host_name() const {
        if (host_rank_ != nobody) return fmt::format("rank {}", host_rank_);
        return in_job_ ? "a rank" : "the launcher";
    }

    net::HostPort at_;
    std::string secret_, job_;
    // Servers of version 0.1.0 know their own job only, and close connections with another
    // greeting.
    std::atomic<bool> knows_jobs_{true};
    bool hosted_;     // rank 0 does not open the job
    Rank host_rank_;  // nobody: the launcher serves, or with in_job_ an unknown rank
    bool in_job_;
    std::string name_;
    std::unique_ptr<TcpStoreServer> server_;
    std::optional<UninheritedFd> opening_;  // the connection that keeps the job open
    std::string server_job_;                // the job of the process that serves the store
    // Connections with no request on them: one, unless several threads ask at the same time. So a
    // waiting get never delays another thread's set.
    std::mutex mutex_;
    std::vector<UniqueFd> idle_;
};

Result<> TcpStore::introduce(int fd, JobEntry entry, Deadline deadline) const {
    net::end_with_peers_host(fd);
    const bool own = entry == JobEntry::own;
    const net::AuthKey key{
        .secret = secret_,
        .context = own ? store_protocol::handshake_context(job_)
                       : std::string(store_protocol::any_job_context),
        .greeting = own ? net::Greeting::own_job : net::Greeting::any_job,
    };
    return net::introduce(
        fd, key, store_protocol::encode_store_hello({.entry = entry, .job = job_}), deadline);
}

// The server's answers to the hello. keep_trying: rank 0 may not have opened the job yet. Returns
// the job of the server's process; nullopt: the process ended before rank 0 opened this job, and
// another one may serve.
Result<std::optional<std::string>> TcpStore::await_job(int fd, Deadline deadline,
                                                       bool keep_trying) const {
    const int64_t start_ns = now_ns();
    auto reply = receive_reply(fd, deadline);
    if (!reply && reply.error().code == Code::peer_lost) return tl::unexpected(gone(reply.error()));
    if (!reply) return wrap(std::move(reply).error(), "store " + name_);
    if (reply->status == Status::ok) return std::move(reply->value);
    if (reply->status == Status::taken)
        return ErrorResult({Code::system, nobody, EADDRINUSE,
                            fmt::format("store {} serves job '{}' already, for another rank 0",
                                        name_, job_)})
            .advice("end the earlier run, or give this one another TUTTI_JOB");
    const std::string others = std::move(reply->value);
    if (!server_job_.empty() || (!keep_trying && !in_job_))
        return tl::unexpected(gone({Code::peer_lost, host_rank_, 0, "the job is closed"}));
    if (hosted_)
        return ErrorResult({Code::auth, nobody, job_closed_errno,
                            fmt::format("store {} serves job {}, not '{}'", name_, others, job_)})
            .advice("compare TUTTI_SECRET and TUTTI_JOB on all ranks");
    if (!answers(fd, deadline.within_ms(tell_job_ms)) && !deadline.passed())
        log::warn(fail(Code::timeout,
                       "store {} serves job {}; this process waits for rank 0 of job '{}'", name_,
                       others, job_)
                      .advice("compare TUTTI_JOB on all ranks, and start rank 0"));
    auto opened = receive_reply(fd, deadline);
    if (opened) return std::move(opened->value);
    if (opened.error().code != Code::timeout) return std::nullopt;
    return fail(Code::timeout, "store {} serves job {}, and rank 0 did not open job '{}' in {} ms",
                name_, others, job_, (now_ns() - start_ns) / 1'000'000)
        .advice("compare TUTTI_JOB on all ranks, and start rank 0");
}

Result<TcpStore::JobConnection> TcpStore::connect(Deadline deadline, bool keep_trying) {
    const int64_t start_ns = now_ns();
    const auto unreachable = [&](const Error& cause) {
        Error error{cause.code, host_rank_, cause.sys_errno,
                    fmt::format("store {} was not reachable for {} ms: {}", name_,
                                (now_ns() - start_ns) / 1'000'000, cause.message),
                    cause.advice};
        if (cause.sys_errno == ECONNREFUSED)
            error.advice = fmt::format(
                "start {}, which serves the store, and compare TUTTI_STORE (or MASTER_ADDR and "
                "MASTER_PORT) on all ranks",
                host_name());
        return tl::unexpected<Error>(std::move(error));
    };
    bool answered = false, refused = false;
    for (net::Redial redial;;) {
        // A server that has answered and then gone away has lost its keys, so this retries only
        // briefly.
        const Deadline patience = answered ? deadline.within_ms(gone_ms) : deadline;
        auto fd =
            net::connect_tcp(at_, {.deadline = patience, .keep_trying = keep_trying || answered});
        if (!fd && (answered || !keep_trying) && !deadline.passed() &&
            classify_errno(fd.error().sys_errno) == ErrnoClass::peer)
            return tl::unexpected(gone(fd.error()));
        if (!fd) return unreachable(fd.error());
        answered = true;
        const bool any_job = knows_jobs_;
        auto introduced = introduce(fd->get(), any_job ? JobEntry::enter : JobEntry::own, deadline);
        if (introduced && !any_job) return JobConnection{*std::move(fd), {}};
        if (introduced) {
            TUTTI_ASSIGN(auto server_job, await_job(fd->get(), deadline, keep_trying));
            if (server_job) return JobConnection{*std::move(fd), *std::move(server_job)};
            answered = false;
            continue;
        }
        Error& cause = introduced.error();
        if (cause.code == Code::timeout) return unreachable(cause);
        // A server that closes is of version 0.1.0, or short of descriptors: the other greeting is
        // the next to try.
        const bool hung_up = cause.code == Code::auth && cause.sys_errno == ECONNRESET;
        refused = refused || hung_up;
        if (refused) knows_jobs_ = !any_job;
        if (refused && cause.code == Code::auth) cause.sys_errno = ECONNRESET;
        if (!redial.again(cause, deadline)) return wrap(cause, "store " + name_);
    }
}

Error TcpStore::gone(const Error& cause) const {
    if (!server_job_.empty() && server_job_ != job_)
        return {Code::peer_lost, nobody, cause.sys_errno,
                fmt::format("store {} is gone: the process of job '{}' that served it has ended, "
                            "or rank 0, which opened job '{}' there ({})",
                            name_, server_job_, job_, cause.message),
                "read the output of rank 0, and start the job again"};
    return {Code::peer_lost, host_rank_, cause.sys_errno,
            fmt::format("store {} is gone: the process of {}, which served it, has ended ({})",
                        name_, host_name(), cause.message),
            fmt::format("read the output of {}, and start the job again", host_name())};
}

Result<> TcpStore::reach(Deadline deadline, bool keep_trying) {
    TUTTI_ASSIGN(JobConnection connection, connect(deadline, keep_trying));
    server_job_ = std::move(connection.server_job);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection.fd));
    return {};
}

Result<> TcpStore::open_job(Deadline deadline) {
    TUTTI_ASSIGN(UniqueFd fd, net::connect_tcp(at_, {.deadline = deadline}));
    TUTTI_TRY(introduce(fd.get(), JobEntry::open, deadline));
    TUTTI_TRY(await_job(fd.get(), deadline, false));
    opening_.emplace(std::move(fd));
    return reach(deadline, false);
}

Result<UniqueFd> TcpStore::take_connection(Deadline deadline) {
    {
        const std::lock_guard lock(mutex_);
        if (!idle_.empty()) {
            UniqueFd fd = std::move(idle_.back());
            idle_.pop_back();
            return fd;
        }
    }
    // No retry: a store that was reached before and is gone does not return.
    TUTTI_ASSIGN(JobConnection connection, connect(deadline, false));
    return std::move(connection.fd);
}

Result<Reply> TcpStore::ask_on(int fd, ByteView request, Deadline deadline) {
    TUTTI_TRY(net::send_frame(fd, request, deadline));
    return receive_reply(fd, deadline);
}

Result<Reply> TcpStore::ask(StoreOp op, const std::string& key, std::string_view value,
                            Deadline deadline) {
    if (key.size() > store_protocol::max_key_bytes)
        return fail(Code::invalid, "store {}: a key of {} bytes is over the limit of {}", name_,
                    key.size(), store_protocol::max_key_bytes)
            .advice("use a key of at most {} bytes", store_protocol::max_key_bytes);
    if (value.size() > store_protocol::max_value_bytes)
        return fail(Code::invalid, "store {}: {} bytes for key \"{}\" are over the limit of {}",
                    name_, value.size(), key, store_protocol::max_value_bytes)
            .advice("use a value of at most {} bytes", store_protocol::max_value_bytes);
    TUTTI_ASSIGN(UniqueFd fd, take_connection(deadline));
    auto reply = ask_on(fd.get(), store_protocol::encode_request(op, key, value), deadline);
    if (!reply) {
        // Closes the connection: a later request would take a late reply for its own.
        if (reply.error().code == Code::peer_lost)
            return wrap(gone(reply.error()), fmt::format("key \"{}\"", key));
        return wrap(std::move(reply.error()), fmt::format("store {}, key \"{}\"", name_, key));
    }
    if (reply->status == Status::refused)
        return fail(Code::system, "store {} refused key \"{}\": {}", name_, key, reply->value)
            .advice("give each job a store of its own");
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(fd));
    return reply;
}

Result<> TcpStore::set(const std::string& key, std::string_view value, Deadline deadline) {
    TUTTI_TRY(ask(StoreOp::set, key, value, deadline));
    return {};
}

Result<std::string> TcpStore::get(const std::string& key, Deadline deadline) {
    const int64_t start_ns = now_ns();
    auto reply = ask(StoreOp::get, key, "", deadline);
    if (reply) return std::move(reply->value);
    if (reply.error().code == Code::timeout) return key_missing(key, name_, start_ns);
    return tl::unexpected<Error>(std::move(reply.error()));
}

Result<std::optional<std::string>> TcpStore::try_get(const std::string& key, Deadline deadline) {
    TUTTI_ASSIGN(Reply reply, ask(StoreOp::try_get, key, "", deadline));
    if (reply.status == Status::missing) return std::nullopt;
    return std::move(reply.value);
}

Result<bool> TcpStore::claim(const std::string& key, std::string_view value, std::string& existing,
                             Deadline deadline) {
    TUTTI_ASSIGN(Reply reply, ask(StoreOp::claim, key, value, deadline));
    if (reply.status == Status::ok) return true;
    existing = std::move(reply.value);
    return false;
}

Result<std::unique_ptr<Will>> TcpStore::set_will(const std::string& key, std::string_view value,
                                                 Deadline deadline) {
    // No will needed: the store ends with this process.
    if (serves()) return std::make_unique<Will>();
    TUTTI_ASSIGN(JobConnection connection, connect(deadline, false));
    auto kept = ask_on(connection.fd.get(),
                       store_protocol::encode_request(StoreOp::will, key, value), deadline);
    if (!kept) return wrap(std::move(kept.error()), "store " + name_);
    return std::make_unique<TcpWill>(std::move(connection.fd));
}

std::string TcpStore::suspicion() const {
    const uint64_t count = server_ ? server_->turned_away() : 0;
    if (count == 0) return {};
    return fmt::format("{} connection{} to the store {} refused for a wrong secret or job name",
                       count, count == 1 ? "" : "s", count == 1 ? "was" : "were");
}

Result<> TcpStore::remove(const std::string& key, Deadline deadline) {
    TUTTI_TRY(ask(StoreOp::remove, key, "", deadline));
    return {};
}

}  // namespace

Result<> check_exposure(const net::HostPort& at, const std::string& secret, bool insecure,
                        Deadline deadline) {
    if (!secret.empty()) return {};
    const std::string address = net::format_host_port(at);
    const auto hidden = net::is_loopback(at.host, deadline);
    if (!hidden) return wrap(hidden.error(), fmt::format("store tcp://{}", address));
    if (*hidden) return {};
    if (!insecure)
        return fail(Code::invalid,
                    "store tcp://{} is not on loopback and there is no secret, so any process that "
                    "reaches this port could join the job",
                    address)
            .advice(
                "set TUTTI_SECRET to the same value on every rank, or TUTTI_INSECURE=1 on a "
                "network you trust");
    log::warn(
        fail(Code::auth,
             "store tcp://{} has no secret (TUTTI_INSECURE), so any process that reaches this port "
             "can join the job",
             address)
            .advice(
                "set TUTTI_SECRET to the same value on every rank, unless you trust the network"));
    return {};
}

namespace {

constexpr int64_t try_place_ms = 2000;  // for one of several places
constexpr int next_round_ms = 50;

/// "tcp://host:port,tcp://host:port": the places where the store may be, in order.
Result<std::vector<net::HostPort>> parse_places(const std::string& url) {
    std::vector<net::HostPort> places;
    for (std::string_view rest = url; !rest.empty();) {
        const auto comma = std::min(rest.find(','), rest.size());
        const std::string_view place = rest.substr(0, comma);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
        if (!place.starts_with("tcp://"))
            return fail(Code::invalid, "store \"{}\": \"{}\" is no tcp store", url, place)
                .advice(
                    "separate the places of a tcp store by commas: tcp://a:29500,tcp://b:29500");
        auto parsed = net::parse_host_port(after_scheme(place));
        if (!parsed) return wrap(parsed.error(), fmt::format("store \"{}\"", url));
        if (parsed->port == 0)
            return fail(Code::invalid,
                        "store \"{}\" has port 0, which the other ranks cannot reach", url)
                .advice("give a port from 1 to 65535, the same on every rank");
        places.push_back(*std::move(parsed));
    }
    return places;
}

/// Serves at the first place that this process can listen on.
Result<std::unique_ptr<Store>> serve(const StoreOptions& options,
                                     const std::vector<net::HostPort>& places) {
    std::optional<Error> first;
    for (const net::HostPort& at : places) {
        auto started = TcpStoreServer::start({.host = at.host,
                                              .port = at.port,
                                              .job = options.job,
                                              .secret = options.secret,
                                              .insecure = options.insecure,
                                              .deadline = options.deadline});
        if (!started && started.error().code == Code::invalid)
            return tl::unexpected<Error>(std::move(started.error()));
        if (!started && started.error().sys_errno == EADDRINUSE) {
            auto store = std::make_unique<TcpStore>(options, at, nullptr);
            const auto opened = store->open_job(options.deadline.within_ms(open_ms));
            if (opened) return store;
            started.error().message += fmt::format("; its server does not open job '{}': {}",
                                                   options.job, opened.error().message);
            if (opened.error().sys_errno == EADDRINUSE)
                started.error().advice = opened.error().advice;
        }
        if (!started) {
            // A place that is taken is on this host: the caller may look for its server.
            if (!first || started.error().sys_errno == EADDRINUSE)
                first = std::move(started.error());
            continue;
        }
        auto store = std::make_unique<TcpStore>(options, at, std::move(*started));
        TUTTI_TRY(store->reach(options.deadline, true));
        return store;
    }
    return wrap(*std::move(first),
                fmt::format("rank 0 cannot host store {} on this machine", options.url));
}

/// Looks for the server at one place after the other, until the deadline.
Result<std::unique_ptr<Store>> find(const StoreOptions& options,
                                    const std::vector<net::HostPort>& places) {
    const int64_t start_ns = now_ns();
    for (;;) {
        std::optional<Error> last;
        auto places_left = static_cast<int64_t>(places.size());
        for (const net::HostPort& at : places) {
            auto store = std::make_unique<TcpStore>(options, at, nullptr);
            const int64_t share_ms =
                options.deadline.left_ms(try_place_ms * places_left) / places_left;
            --places_left;
            const auto patience = Deadline::after_ms(std::max<int64_t>(1, share_ms));
            auto reached = store->reach(patience, false);
            if (reached) return store;
            if (reached.error().code == Code::auth && !is_job_closed(reached.error()))
                return tl::unexpected(reached.error());
            last = std::move(reached).error();
        }
        if (options.deadline.passed() || net::wait_cancelled())
            return fail(Code::timeout, "none of the places of store {} answered for {} ms: {}",
                        options.url, (now_ns() - start_ns) / 1'000'000, last->message)
                .advice(
                    "start the process that serves the store, and compare TUTTI_STORE on all "
                    "ranks");
        net::poll_serving(nullptr, next_round_ms);
    }
}

}  // namespace

Result<std::unique_ptr<Store>> open_tcp_store(const StoreOptions& options) {
    TUTTI_ASSIGN(const auto places, parse_places(options.url));
    if (options.rank == 0 && !options.hosted) return serve(options, places);
    for (const net::HostPort& at : places)
        TUTTI_TRY(check_exposure(at, options.secret, options.insecure, options.deadline));
    if (places.size() > 1) return find(options, places);
    auto store = std::make_unique<TcpStore>(options, places.front(), nullptr);
    const bool may_start_later = options.server == nobody;
    TUTTI_TRY(store->reach(options.deadline, may_start_later));
    return store;
}

}  // namespace tutti
