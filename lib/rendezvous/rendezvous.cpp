#include "rendezvous/rendezvous.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>

#include "base/hash.h"
#include "base/log.h"
#include "net/auth.h"
#include "net/resolve.h"
#include "net/serving.h"
#include "net/socket.h"
#include "rendezvous/host_list.h"
#include "rendezvous/job_directory.h"
#include "rendezvous/key_space.h"
#include "rendezvous/store_kinds.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/tcp_store.h"

namespace tutti {
namespace {

constexpr std::size_t shared_secret_bytes = 32;
constexpr uint16_t lowest_port = 20'000;  // below the ports that systems assign themselves
constexpr uint64_t port_groups = 750;
constexpr int64_t probe_ms = 2'000;
constexpr int probe_pause_ms = 100;

/// A store in a job directory, which is destroyed after the store.
struct StoreInDirectory {
    std::unique_ptr<JobDirectory> directory;
    std::unique_ptr<Store> store;
};

Result<RendezvousPlace> rendezvous_in_directory(const Config& config, const Launch& launch,
                                                Deadline deadline) {
    auto held = std::make_shared<StoreInDirectory>();
    TUTTI_ASSIGN(held->directory,
                 JobDirectory::open(job_directory_path(launch.identity), deadline));
    RendezvousPlace place{.url = "file://" + held->directory->path(),
                          .secret = held->directory->secret(),
                          .iface = "127.0.0.1",
                          .job = {},
                          .hosted = false,
                          .store = nullptr};
    TUTTI_ASSIGN(held->store,
                 open_file_store({.url = place.url, .job = config.job, .deadline = deadline}));
    place.store = {held, held->store.get()};
    return place;
}

TcpStoreServer::Options server_options(const Config& config, net::HostPort at,
                                       const std::string& secret, Deadline deadline) {
    return {.host = std::move(at.host),
            .port = at.port,
            .job = config.job,
            .secret = secret,
            .insecure = config.insecure,
            .deadline = deadline};
}

// Kept until the process ends: later communicators of this process and other ranks use it.
void keep_serving(std::unique_ptr<TcpStoreServer> server) {
    static auto* kept = new std::vector<std::unique_ptr<TcpStoreServer>>;
    kept->push_back(std::move(server));
}

// "address,secret"
Result<RendezvousPlace> rendezvous_over_key_space(const Config& config, const Launch& launch,
                                                  const GetEnv& get_env, Deadline deadline) {
    std::string told;
    if (config.rank == 0) {
        std::string secret = config.secret;
        if (secret.empty()) {
            TUTTI_ASSIGN(secret, net::random_hex(shared_secret_bytes));
        }
        net::HostPort at;
        TUTTI_ASSIGN(at.host, net::choose_address({.iface = config.iface, .usual = {}}));
        TUTTI_ASSIGN(auto server,
                     TcpStoreServer::start(server_options(config, at, secret, deadline)));
        at.port = server->port();
        keep_serving(std::move(server));
        // The user gives a configured secret to every rank, so it does not go through the launcher.
        told = fmt::format("{},{}", net::format_host_port(at), config.secret.empty() ? secret : "");
    }
    TUTTI_ASSIGN(const std::string heard,
                 launch.rendezvous == RendezvousKind::pmix
                     ? share_over_pmix(config.rank, told, deadline)
                     : share_over_pmi(get_env, config.rank, told, deadline));
    const auto comma = heard.find(',');
    if (comma == std::string::npos)
        return fail(Code::system, "the launcher returned '{}' as the address of rank 0", heard)
            .advice("set TUTTI_STORE, so that the ranks find each other without the launcher");
    return RendezvousPlace{.url = "tcp://" + heard.substr(0, comma),
                           .secret = heard.substr(comma + 1),
                           .iface = {},
                           .job = {},
                           .hosted = true,
                           .store = nullptr};
}

Result<uint16_t> serve_at_a_port(const Config& config, uint16_t first, Deadline deadline) {
    for (int i = 0;; ++i) {
        const auto port = static_cast<uint16_t>(first + i);
        auto server = TcpStoreServer::start(
            server_options(config, {.host = "0.0.0.0", .port = port}, config.secret, deadline));
        if (server) {
            keep_serving(*std::move(server));
            return port;
        }
        if (server.error().sys_errno != EADDRINUSE || i + 1 == port_choices)
            return tl::unexpected(std::move(server).error());
        log::info("port {} is in use: the store tries the next port", port);
    }
}

// Waits until Slurm's node name resolves: Slurm knows the nodes' addresses, but gives programs only
// the names.
Result<> await_address(const std::string& host, Deadline deadline) {
    std::string why;
    while (true) {
        const auto known = net::resolve({.host = host, .port = lowest_port}, deadline);
        if (known) return {};
        // Keeps an earlier cause, which a time-out at the deadline would hide.
        if (why.empty() || known.error().code != Code::timeout) why = known.error().message;
        if (deadline.passed() || net::wait_cancelled())
            return fail(Code::timeout, "the first host of this Slurm step, {}, has no address: {}",
                        host, why)
                .advice(
                    "give the names of Slurm's nodes addresses on all hosts (DNS, /etc/hosts), "
                    "start with srun --mpi=pmix, or set TUTTI_STORE");
        net::poll_serving(nullptr, probe_pause_ms);
    }
}

// Another program or another step may listen on a port: the handshake checks the secret and the
// job.
Result<uint16_t> find_port(const Config& config, const std::string& host, uint16_t first,
                           Deadline deadline) {
    const net::AuthKey key{config.secret, store_protocol::handshake_context(config.job)};
    std::string last;
    while (true) {
        for (int i = 0; i < port_choices; ++i) {
            const auto port = static_cast<uint16_t>(first + i);
            const auto probe = deadline.within_ms(probe_ms);
            const auto fd = net::connect_tcp({.host = host, .port = port}, {.deadline = probe});
            if (!fd) {
                last = fd.error().message;
                continue;
            }
            const auto known = net::authenticate_client(fd->get(), key, probe);
            if (known) return port;
            last = known.error().message;
        }
        if (deadline.passed() || net::wait_cancelled())
            return fail(Code::timeout,
                        "no rank serves a store on {}, ports {} to {} (the first host and the "
                        "ports of this Slurm step): {}",
                        host, first, first + port_choices - 1, last)
                .advice(
                    "check that the first rank on that host runs, that the network lets these "
                    "ports through, and that all ranks have the same TUTTI_SECRET and TUTTI_JOB");
        net::poll_serving(nullptr, probe_pause_ms);
    }
}

// If steps share ports by chance, and a secret, the job's name tells them apart.
Result<RendezvousPlace> rendezvous_at_a_port(Config config, const Launch& launch,
                                             Deadline deadline) {
    if (config.secret.empty() && !config.insecure)
        return fail(Code::invalid,
                    "the ranks are on several hosts ({}), and Slurm gives a job no secret",
                    launch.hosts)
            .advice(
                "set TUTTI_SECRET_FILE to a file on all hosts that only you may read (openssl rand "
                "-hex 32), start with srun --mpi=pmix, or set TUTTI_INSECURE=1 on a network you "
                "trust");
    TUTTI_ASSIGN(const std::vector<std::string> hosts, expand_host_list(launch.hosts));
    config.job += ", step " + launch.step;
    TUTTI_TRY(await_address(hosts.front(), deadline));
    const uint16_t first = first_port(launch.identity);
    auto port = launch.serves ? serve_at_a_port(config, first, deadline)
                              : find_port(config, hosts.front(), first, deadline);
    if (!port) return tl::unexpected(std::move(port).error());
    return RendezvousPlace{
        .url = fmt::format("tcp://{}", net::format_host_port({hosts.front(), *port})),
        .secret = {},
        .iface = {},
        .job = config.job,
        .hosted = true,
        .store = nullptr};
}

// All communicators of the process use the address that was found once.
std::mutex found_mutex;
std::optional<RendezvousPlace> found_place;

ErrorResult no_rendezvous(const std::string& why, const std::string& remedy = {}) {
    const Error error = open_store({}).error();
    return fail(Code::invalid, "{}: {}", error.message, why)
        .advice("{}{}{}", remedy, remedy.empty() ? "" : ", or ", error.advice);
}

}  // namespace

uint16_t first_port(const std::string& identity) {
    return static_cast<uint16_t>(lowest_port + hash_of(identity) % port_groups * port_choices);
}

Result<RendezvousPlace> find_rendezvous(const Config& config, const GetEnv& get_env,
                                        Deadline deadline) {
    const Launch launch = detect_launch(get_env);
    if (launch.rendezvous == RendezvousKind::none) return no_rendezvous(launch.why, launch.remedy);
    if (launch.rank != config.rank || launch.size != config.size)
        return no_rendezvous(
            fmt::format("{} started rank {} of {}, but the settings say rank {} of {}",
                        launch.launcher, launch.rank, launch.size, config.rank, config.size));
    if (launch.rendezvous == RendezvousKind::directory)
        return rendezvous_in_directory(config, launch, deadline);
    const std::lock_guard lock(found_mutex);
    if (found_place) return *found_place;
    auto place = launch.rendezvous == RendezvousKind::ports
                     ? rendezvous_at_a_port(config, launch, deadline)
                     : rendezvous_over_key_space(config, launch, get_env, deadline);
    if (place) found_place = *place;
    return place;
}

std::string describe_meeting(const Launch& launch) {
    switch (launch.rendezvous) {
        case RendezvousKind::none:
            return fmt::format("set TUTTI_STORE{}{}: {}", launch.remedy.empty() ? "" : ", or ",
                               launch.remedy, launch.why);
        case RendezvousKind::directory:
            return "all ranks are on this host: they meet in " +
                   job_directory_path(launch.identity);
        case RendezvousKind::pmi:
            return "rank 0 serves a store and tells the others its address over PMI_FD";
        case RendezvousKind::pmix:
            return "rank 0 serves a store and tells the others its address over PMIx "
                   "(libpmix.so.2)";
        case RendezvousKind::ports: {
            const auto hosts = expand_host_list(launch.hosts);
            if (!hosts) return "set TUTTI_STORE: " + hosts.error().message;
            const uint16_t first = first_port(launch.identity);
            return fmt::format(
                "the first rank on {} serves a store, at one of the ports {} to {}; needs "
                "TUTTI_SECRET or TUTTI_SECRET_FILE",
                hosts->front(), first, first + port_choices - 1);
        }
    }
    return {};
}

}  // namespace tutti
