#include "handles/own_handles.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "base/hash.h"
#include "base/version.h"
#include "handles/handle_store.h"
#include "net/auth.h"
#include "net/socket.h"
#include "os/at_exit.h"
#include "os/forks.h"
#include "rendezvous/tcp_store.h"

namespace tutti::own_handles {
namespace {

constexpr int64_t reach_own_ms = 10'000;

struct OwnServer {
    std::unique_ptr<TcpStoreServer> server;
    Own own;
    std::set<uint64_t> used;  // hashes of the uuids
};

struct OwnServers {
    std::mutex mutex;  // guards the map and what is in it
    std::map<std::string, OwnServer> by_settings;
};

constinit PerProcess<OwnServers> own_servers;

std::string settings_of(const Config& config) {
    return fmt::format("{}\n{}\n{}\n{}\n{}", config.job, config.secret, config.iface,
                       config.insecure, config.rank);
}

void close_servers(Deadline) {
    std::map<std::string, OwnServer> closing;  // destroyed without the mutex
    OwnServers& here = own_servers.here();
    const std::lock_guard lock(here.mutex);
    closing.swap(here.by_settings);
}

Result<OwnServer> serve(const Config& config) {
    OwnServer entry;
    Handle& handle = entry.own.handle;
    TUTTI_ASSIGN(const Bytes process, net::random_bytes(Handle::process_bytes));
    handle.process = as_text(process);
    handle.version = version();
    handle.job = config.job;
    const bool loopback_only = config.secret.empty() && !config.insecure;
    net::HostPort at;
    TUTTI_ASSIGN(at.host, net::choose_address({config.iface, loopback_only, {}}));
    TUTTI_TRY(handle.sign(config.secret));  // refuses a name that is too long
    TUTTI_ASSIGN(entry.server, TcpStoreServer::start({.host = at.host,
                                                      .port = 0,
                                                      .job = handle.store_job(),
                                                      .secret = config.secret,
                                                      .insecure = config.insecure}));
    at.port = entry.server->port();
    handle.address = net::format_host_port(at);
    TUTTI_TRY(handle.sign(config.secret));
    TUTTI_ASSIGN(entry.own.store,
                 open_process_store(handle, 0, config, Deadline::after_ms(reach_own_ms)));
    at_exit::arm("handles", at_exit::ExitStep::close_handles, close_servers);
    return entry;
}

}  // namespace

Result<Own> get(const Config& config) {
    OwnServers& here = own_servers.here();
    const std::lock_guard lock(here.mutex);
    const std::string settings = settings_of(config);
    auto found = here.by_settings.find(settings);
    if (found == here.by_settings.end()) {
        TUTTI_ASSIGN(OwnServer made, serve(config));
        found = here.by_settings.emplace(settings, std::move(made)).first;
    }
    return found->second.own;
}

Result<Own> find(const Config& config) {
    OwnServers& here = own_servers.here();
    const std::lock_guard lock(here.mutex);
    const auto found = here.by_settings.find(settings_of(config));
    if (found == here.by_settings.end())
        return fail(Code::invalid,
                    "this process has no handle for job '{}' and these settings, so no other "
                    "process can reach it",
                    config.job)
            .advice(
                "call tutti_comm_get_handle first, with the same configuration, and give its "
                "handle to the other processes");
    return found->second.own;
}

Result<> use_uuid(const Config& config, const std::string& uuid) {
    OwnServers& here = own_servers.here();
    const std::lock_guard lock(here.mutex);
    OwnServer& entry = here.by_settings[settings_of(config)];
    if (entry.used.insert(hash_of(uuid)).second) return {};
    return fail(Code::invalid, "uuid '{}' was used before, in a call of this process", uuid)
        .advice("give every call a new uuid, the same in all its processes");
}

}  // namespace tutti::own_handles
