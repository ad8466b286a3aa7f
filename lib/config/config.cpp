#include "config/config.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <mutex>

#include "base/log.h"
#include "config/misspelt.h"
#include "config/small_file.h"

namespace tutti {
namespace {

constexpr int max_rings = 16;

Result<int64_t> parse_int(std::string_view text, int64_t low, int64_t high) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high)
        return fail(Code::invalid, "'{}' is not a whole number from {} to {}", text, low, high)
            .advice("give a whole number from {} to {}", low, high);
    return value;
}

Result<bool> parse_bool(std::string_view text) {
    if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
    if (text == "0" || text == "false" || text == "no" || text == "off" || text.empty())
        return false;
    return fail(Code::invalid, "'{}' is neither 1 nor 0", text).advice("set it to 1 or 0");
}

Result<> set_bool(bool& target, std::string_view text) {
    TUTTI_ASSIGN(target, parse_bool(text));
    return {};
}

/// low and high are values of T.
template <typename T>
Result<> set_number(T& target, std::string_view text, int64_t low, int64_t high) {
    TUTTI_ASSIGN(const int64_t value, parse_int(text, low, high));
    target = static_cast<T>(value);
    return {};
}

Result<> set_rank(Config& c, std::string_view v) {
    return set_number(c.rank, v, 0, std::numeric_limits<Rank>::max() - 1);
}

Result<> set_size(Config& c, std::string_view v) {
    return set_number(c.size, v, 1, std::numeric_limits<Rank>::max());
}

Result<> set_secret(Config& c, std::string_view v) {
    TUTTI_TRY(check_secret(v));
    c.secret = v;
    return {};
}

Result<> set_secret_file(Config& c, std::string_view v) {
    TUTTI_ASSIGN(const std::string secret, read_secret_file(std::string(v)));
    return set_secret(c, secret);
}

Result<> set_transport(Config& c, std::string_view v) {
    std::vector<std::string> names;
    while (!v.empty()) {
        const auto comma = std::min(v.find(','), v.size());
        if (comma == 0)
            return fail(Code::invalid, "the list has an empty name")
                .advice("put one comma between two names, for example shm,tcp");
        names.emplace_back(v.substr(0, comma));
        v.remove_prefix(std::min(comma + 1, v.size()));
    }
    if (names.empty())
        return fail(Code::invalid, "the list of transports is empty")
            .advice("name at least one transport, for example shm,tcp");
    c.transports = std::move(names);
    return {};
}

Result<> set_nrings(Config& c, std::string_view v) {
    return set_number(c.nrings, v, 1, max_rings);
}

Result<> set_timeout(Config& c, std::string_view v) {
    return set_number(c.timeout_ms, v, 0, std::numeric_limits<int32_t>::max());
}

Result<> set_unexpected(Config& c, std::string_view v) {
    return set_number(c.unexpected_bytes, v, 0, std::numeric_limits<int64_t>::max());
}

Result<> set_check(Config& c, std::string_view v) {
    if (v != "frames" && v != "strict")
        return fail(Code::invalid, "'{}' is neither 'frames' nor 'strict'", v)
            .advice("set it to frames or strict");
    c.check = v == "strict" ? Check::strict : Check::frames;
    return {};
}

Result<> set_heartbeat(Config& c, std::string_view v) {
    constexpr int64_t shortest_ms = 100, longest_ms = 3'600'000;
    TUTTI_ASSIGN(const int64_t value, parse_int(v, 0, longest_ms));
    if (value != 0 && value < shortest_ms)
        return fail(Code::invalid, "{} ms is too short for a heartbeat", value)
            .advice("set it to {} or more, or to 0 for none", shortest_ms);
    c.heartbeat_ms = value;
    return {};
}

Result<> set_progress(Config& c, std::string_view v) {
    if (v != "thread" && v != "manual")
        return fail(Code::invalid, "'{}' is neither 'thread' nor 'manual'", v)
            .advice("set it to thread or manual");
    c.progress = v == "manual" ? ProgressMode::manual : ProgressMode::thread;
    return {};
}

Result<> set_device(Config& c, std::string_view v) {
    constexpr std::pair<std::string_view, DeviceMode> ways[] = {
        {"library", DeviceMode::library}, {"nccl", DeviceMode::library},
        {"staged", DeviceMode::staged},   {"hierarchical", DeviceMode::hierarchical},
        {"auto", DeviceMode::automatic},
    };
    for (const auto& [name, way] : ways)
        if (v == name) return c.device = way, Result<>{};
    return fail(Code::invalid, "'{}' is not a path for collectives on device memory", v)
        .advice("set it to library (or nccl), staged, hierarchical or auto");
}

Result<> set_device_split(Config& c, std::string_view v) {
    if (v != "own" && v != "share")
        return fail(Code::invalid, "'{}' is neither 'own' nor 'share'", v)
            .advice("set it to own or share");
    c.device_split = v == "share" ? DeviceSplit::share : DeviceSplit::own;
    return {};
}

Result<> set_log(Config&, std::string_view v) {
    log::Level level{};
    if (!log::parse_level(v, level))
        return fail(Code::invalid, "'{}' is not a log level", v)
            .advice("set it to one of: {}", log::level_names());
    log::set_level(level);
    return {};
}

// Settings of the contract that are not built yet: asking for one must not be ignored silently.
Result<> refuse_unless_off(std::string_view v, std::string_view what) {
    TUTTI_ASSIGN(const bool on, parse_bool(v));
    if (on)
        return fail(Code::unsupported, "{} is not part of this version", what)
            .advice("set it to 0, or leave it out");
    return {};
}

constexpr ConfigKey keys[] = {
    {"rank", "0 … size-1", "The rank of this process.", set_rank},
    {"size", "1 …", "The number of ranks in the job.", set_size},
    {"store", "tcp://host:port, file:///dir",
     "The address or directory through which the ranks find each other. Rank 0 serves a tcp store.",
     [](Config& c, std::string_view v) -> Result<> { return c.store = v, Result<>{}; }},
    {"store_hosted", "0, 1", "1: a launcher already serves the tcp store (tutti-run sets this).",
     [](Config& c, std::string_view v) { return set_bool(c.store_hosted, v); }},
    {"join", "0, 1",
     "1: this process joins a running job, whose ranks call tutti_comm_grow. It has no rank and no "
     "size of its own.",
     [](Config& c, std::string_view v) { return set_bool(c.join, v); }},
    {"job", "text", "The name of the job. It keeps jobs that share a store apart.",
     [](Config& c, std::string_view v) -> Result<> { return c.job = v, Result<>{}; }},
    {"secret", "16 bytes or more",
     "The secret that every process of the job must know, the same on every rank. Make a random "
     "one: openssl rand -hex 32.",
     set_secret},
    {"secret_file", "path", "The path of a file or pipe that holds the secret.", set_secret_file},
    {"transport", "comma list: shm,tcp",
     "The transports that tutti may use, in order of preference.", set_transport},
    {"nrings", "1 … 16", "The number of rings. Operations on different rings run at the same time.",
     set_nrings},
    {"timeout_ms", "0 …", "The deadline of each operation in milliseconds; 0: no deadline.",
     set_timeout},
    {"heartbeat_ms", "0, 100 … 3600000",
     "A rank counts as lost if it has sent no sign of life for so many milliseconds; 0: never.",
     set_heartbeat},
    {"unexpected_bytes", "0 …",
     "The number of bytes that a rank keeps of another rank's messages before its program receives "
     "them. Beyond that, the sender waits.",
     set_unexpected},
    {"window_bytes", "0 … 512 MiB",
     "The number of bytes of one lane that may be on the way to a rank, between hosts with a round "
     "trip of over 1 ms.",
     [](Config& c, std::string_view v) {
         return set_number(c.window_bytes, v, 0, int64_t{512} << 20);
     }},
    {"round_trip_ms", "-1, 0 … 60000",
     "The round-trip time between hosts in milliseconds, from which tutti chooses algorithms. -1: "
     "measure it at the start; 0: the hosts are next to each other.",
     [](Config& c, std::string_view v) { return set_number(c.round_trip_ms, v, -1, 60'000); }},
    {"iface", "eth0, 10.0.0.1",
     "The network interface or address to listen on. If empty: the one that leads to the tcp "
     "store, or else the first that is not loopback.",
     [](Config& c, std::string_view v) -> Result<> { return c.iface = v, Result<>{}; }},
    {"ofi_provider", "tcp, verbs, efa, …",
     "The libfabric provider for the transport ofi. If empty, tutti chooses one.",
     [](Config& c, std::string_view v) -> Result<> { return c.ofi_provider = v, Result<>{}; }},
    {"fabric_ports", "1 … 16",
     "The number of UCX workers or libfabric endpoints of each rank. Rings take turns on them.",
     [](Config& c, std::string_view v) { return set_number(c.fabric_ports, v, 1, 16); }},
    {"host_id", "text",
     "A name for the host of this rank. Ranks of one machine with different names act as if they "
     "were on different hosts.",
     [](Config& c, std::string_view v) -> Result<> { return c.host_id = v, Result<>{}; }},
    {"algo", "ring, recursive_doubling, …",
     "The algorithm that tutti uses wherever it fits, instead of its own choice.",
     [](Config& c, std::string_view v) -> Result<> { return c.algo = v, Result<>{}; }},
    {"tuning", "path",
     "The path of a tuning file of tutti-tune, with measured constants and choices.",
     [](Config& c, std::string_view v) -> Result<> { return c.tuning = v, Result<>{}; }},
    {"fit_ms", "0 … 60000",
     "The time in milliseconds in which tutti measures this machine at the start, to fit its cost "
     "model. 0: it does not measure.",
     [](Config& c, std::string_view v) { return set_number(c.fit_ms, v, 0, 60'000); }},
    {"check", "frames, strict", "strict: all ranks agree on each call before any data moves.",
     set_check},
    {"progress", "thread, manual",
     "thread: a thread of tutti makes progress. manual: tutti starts no thread, and the program "
     "calls tutti_progress.",
     set_progress},
    {"device", "library, staged, hierarchical, auto",
     "The path of collectives on device memory. library (or nccl): NCCL. staged: through host "
     "memory, where ranks without a device may take part. hierarchical: NCCL within each host, "
     "tutti between the hosts. auto: the first of library, hierarchical and staged that all ranks "
     "can use.",
     set_device},
    {"device_tile_bytes", "4096 … 1 GiB",
     "The size in bytes of the tiles in which data moves between the device and the wire.",
     [](Config& c, std::string_view v) {
         return set_number(c.device_tile_bytes, v, 4096, int64_t{1} << 30);
     }},
    {"device_rings", "1 … 16",
     "The number of NCCL communicators that each communicator has side by side.",
     [](Config& c, std::string_view v) { return set_number(c.device_rings, v, 1, 16); }},
    {"device_split", "own, share",
     "own: a communicator from a split joins NCCL anew, with its first call on device memory. "
     "share: it shares the NCCL resources of its parent, and fails with it.",
     set_device_split},
    {"cuda_library", "auto, path",
     "The path of the CUDA driver that tutti loads if the program has not loaded it. auto: the "
     "system's driver.",
     [](Config& c, std::string_view v) -> Result<> { return c.cuda_library = v, Result<>{}; }},
    {"nccl_library", "path",
     "The path of the NCCL library. If empty: the one that the program has loaded, or else the "
     "system's.",
     [](Config& c, std::string_view v) -> Result<> { return c.nccl_library = v, Result<>{}; }},
    {"reproducible", "0",
     "Sums that do not depend on the number of ranks. Not part of this version: only 0 is allowed.",
     [](Config&, std::string_view v) { return refuse_unless_off(v, "reproducible summation"); }},
    {"tls", "0", "Encrypted connections. Not part of this version: only 0 is allowed.",
     [](Config&, std::string_view v) { return refuse_unless_off(v, "TLS"); }},
    {"insecure", "0, 1", "1: tutti listens beyond loopback without a secret.",
     [](Config& c, std::string_view v) { return set_bool(c.insecure, v); }},
    {"dump", "path",
     "The path to which each rank writes its flight recorder when an operation fails: "
     "PATH.RANK.jsonl. The end of the recorder goes to the log too.",
     [](Config& c, std::string_view v) -> Result<> { return c.dump = v, Result<>{}; }},
    {"log", "trace, debug, info, warn, error, off",
     "The least severe level of the messages that tutti logs to standard error.", set_log},
};

// The variables of other launchers, the innermost first: torchrun runs inside a process that mpirun
// or srun started, and mpirun inside one that Slurm or Kubernetes did. A launcher is recognised by
// its rank variable; a launcher that also sets the size takes precedence.
struct Launcher {
    const char* rank;
    const char* size;  // nullptr: it sets none
    const char* job;
    const char* attempt;  // the number of times it has restarted the ranks
};
constexpr Launcher launchers[] = {
    {"RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_ess_base_jobid", nullptr},
    {"PMI_RANK", "PMI_SIZE", "PMI_JOBID", nullptr},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"},
    {"JOB_COMPLETION_INDEX", nullptr, nullptr, nullptr},
};

const Launcher* find_launcher(const GetEnv& get_env) {
    for (const bool with_size : {true, false})
        for (const Launcher& launcher : launchers)
            if (get_env(launcher.rank) && (!with_size || !launcher.size || get_env(launcher.size)))
                return &launcher;
    return nullptr;
}

std::string* said_by(Config& config, std::string_view key) {
    return key == "rank"    ? &config.said.rank
           : key == "size"  ? &config.said.size
           : key == "store" ? &config.said.store
                            : nullptr;
}

// Whether the rank needs the setting to reach the other ranks.
bool places(std::string_view key) {
    constexpr std::string_view all[] = {"rank",   "size",        "store",    "store_hosted", "job",
                                        "secret", "secret_file", "insecure", "join"};
    return std::find(std::begin(all), std::end(all), key) != std::end(all);
}

Result<> take(Config& config, std::string_view key, const char* variable, const GetEnv& get_env) {
    const char* value = variable ? get_env(variable) : nullptr;
    if (!value) return {};
    if (auto set = set_config(config, key, value); !set) {
        auto refused = wrap(set.error(), variable);
        if (places(key)) return refused;
        if (!config.refused) config.refused = std::move(refused).value();
        return {};
    }
    if (std::string* said = said_by(config, key)) *said = variable;
    return {};
}

// torchrun's own store listens on MASTER_PORT, so tutti uses the next port.
Result<> take_master(Config& config, const GetEnv& get_env) {
    const char* host = get_env("MASTER_ADDR");
    const char* port = get_env("MASTER_PORT");
    if (!host || !port) return {};
    auto number = parse_int(port, 1, 65534);
    if (!number) return wrap(number.error(), "MASTER_PORT");
    const bool v6 = std::string_view(host).find(':') != std::string_view::npos;
    config.store = v6 ? fmt::format("tcp://[{}]:{}", host, *number + 1)
                      : fmt::format("tcp://{}:{}", host, *number + 1);
    return {};
}

}  // namespace

std::span<const ConfigKey> config_keys() {
    return keys;
}

// The server proves to each caller that it knows the secret, so a stranger can test guesses on the
// proof.
Result<> check_secret(std::string_view secret) {
    constexpr std::size_t least_bytes = 16;
    if (secret.empty() || secret.size() >= least_bytes) return {};
    return fail(Code::invalid, "the secret has {} bytes, but a secret needs at least {}",
                secret.size(), least_bytes)
        .advice("make a random secret with `openssl rand -hex 32`");
}

std::string variable_of(std::string_view key) {
    std::string variable = "TUTTI_";
    for (char c : key) variable += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    return variable;
}

Result<> set_config(Config& config, std::string_view key, std::string_view value) {
    for (const ConfigKey& k : keys) {
        if (k.name != key) continue;
        if (auto set = k.set(config, value); !set)
            return wrap(set.error(), fmt::format("setting '{}' ({})", key, k.value));
        if (std::string* said = said_by(config, key)) *said = fmt::format("the setting '{}'", key);
        return {};
    }
    std::string names;
    for (const ConfigKey& k : keys) names += fmt::format("{}{}", names.empty() ? "" : ", ", k.name);
    return fail(Code::invalid, "unknown setting '{}'", key).advice("use one of: {}", names);
}

Result<Config> config_from_environment(const GetEnv& get_env) {
    Config config;
    if (const Launcher* launcher = find_launcher(get_env)) {
        TUTTI_TRY(take(config, "rank", launcher->rank, get_env));
        TUTTI_TRY(take(config, "size", launcher->size, get_env));
        TUTTI_TRY(take(config, "job", launcher->job, get_env));
        if (const char* attempt = launcher->attempt ? get_env(launcher->attempt) : nullptr) {
            const auto number = parse_int(attempt, 0, std::numeric_limits<int32_t>::max());
            if (!number) return wrap(number.error(), launcher->attempt);
            config.attempt = static_cast<uint32_t>(*number);
        }
    }
    TUTTI_TRY(take_master(config, get_env));
    const char* secret = get_env("TUTTI_SECRET");
    for (const ConfigKey& k : keys) {
        // Tutti-run has the same precedence.
        if (k.name == "secret_file" && secret && *secret) continue;
        TUTTI_TRY(take(config, k.name, variable_of(k.name).c_str(), get_env));
    }
    return config;
}

Result<Config> config_of_process() {
    auto config = config_from_environment(
        [](const char* name) { return static_cast<const char*>(std::getenv(name)); });
    static std::once_flag told;  // warns only once the level of the log is known
    std::call_once(told, [] {
        for (const Error& misspelt : misspelt_variables(environ)) log::warn(misspelt);
    });
    return config;
}

// A newcomer gets its place from the job. The variables of a launcher do not count.
Result<> check_newcomer(const Config& config) {
    for (const std::string& said : {config.said.rank, config.said.size})
        if (said.starts_with("TUTTI_") || said.starts_with("the setting"))
            return fail(Code::invalid,
                        "{} is set, but a process that joins a running job (TUTTI_JOIN=1) gets its "
                        "rank and the size from the job",
                        said)
                .advice("unset TUTTI_RANK and TUTTI_SIZE in a process with TUTTI_JOIN=1");
    return {};
}

Result<> check_whole(const Config& config) {
    if (config.join) return check_newcomer(config);
    const auto& [rank, size, store] = config.said;
    if (!rank.empty() && size.empty())
        return fail(Code::invalid,
                    "{} says that this is rank {}, but the number of ranks is not set", rank,
                    config.rank)
            .advice("set TUTTI_SIZE on every rank (1 for a job of one rank)");
    if (rank.empty() && !size.empty() && config.size > 1)
        return fail(Code::invalid,
                    "{} says that there are {} ranks, but the rank of this process is not set",
                    size, config.size)
            .advice("set TUTTI_RANK to another number from 0 to {} for each process",
                    config.size - 1);
    if (rank.empty() && size.empty() && !store.empty() && !config.store.empty())
        return fail(Code::invalid,
                    "{} gives the store '{}', but the rank of this process and the number of "
                    "ranks are not set",
                    store, config.store)
            .advice("set TUTTI_RANK and TUTTI_SIZE; for a job of one rank, remove the store");
    return {};
}

}  // namespace tutti
