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
        return fail(Code::invalid, "'{}' is not a whole number from {} to {}", text, low, high);
    return value;
}

Result<bool> parse_bool(std::string_view text) {
    if (text == "1" || text == "true" || text == "yes" || text == "on") return true;
    if (text == "0" || text == "false" || text == "no" || text == "off" || text.empty())
        return false;
    return fail(Code::invalid, "'{}' is neither 1 nor 0", text);
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
        if (comma == 0) return fail(Code::invalid, "an empty name in the list");
        names.emplace_back(v.substr(0, comma));
        v.remove_prefix(std::min(comma + 1, v.size()));
    }
    if (names.empty()) return fail(Code::invalid, "the list is empty");
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
        return fail(Code::invalid, "'{}' is neither 'frames' nor 'strict'", v);
    c.check = v == "strict" ? Check::strict : Check::frames;
    return {};
}

Result<> set_progress(Config& c, std::string_view v) {
    if (v != "thread" && v != "manual")
        return fail(Code::invalid, "'{}' is neither 'thread' nor 'manual'", v);
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
    return fail(Code::invalid, "'{}' is none of library (or nccl), staged, hierarchical, auto", v);
}

Result<> set_device_split(Config& c, std::string_view v) {
    if (v != "own" && v != "share")
        return fail(Code::invalid, "'{}' is neither 'own' nor 'share'", v);
    c.device_split = v == "share" ? DeviceSplit::share : DeviceSplit::own;
    return {};
}

Result<> set_log(Config&, std::string_view v) {
    log::Level level{};
    if (!log::parse_level(v, level))
        return fail(Code::invalid, "'{}' is none of {}", v, log::level_names());
    log::set_level(level);
    return {};
}

// Named by the contract, not built yet: asking for them must not be silently ignored.
Result<> refuse_unless_off(std::string_view v, std::string_view what) {
    TUTTI_ASSIGN(const bool on, parse_bool(v));
    if (on) return fail(Code::unsupported, "{} is not part of this version", what);
    return {};
}

constexpr ConfigKey keys[] = {
    {"rank", "0 … size-1", "this process's rank", set_rank},
    {"size", "1 …", "how many ranks the job has", set_size},
    {"store", "tcp://host:port, file:///dir", "where the ranks find each other; rank 0 serves tcp",
     [](Config& c, std::string_view v) -> Result<> { return c.store = v, Result<>{}; }},
    {"store_hosted", "0, 1", "a launcher already serves the tcp store (tutti-run sets it)",
     [](Config& c, std::string_view v) { return set_bool(c.store_hosted, v); }},
    {"job", "text", "keeps jobs that share a store apart",
     [](Config& c, std::string_view v) -> Result<> { return c.job = v, Result<>{}; }},
    {"secret", "16 bytes or more", "what the job's processes prove to each other that they know",
     set_secret},
    {"secret_file", "path", "the secret, from a file or a pipe", set_secret_file},
    {"transport", "comma list: shm,tcp", "what may be used, in order of preference", set_transport},
    {"nrings", "1 … 16", "how many streams run at the same time", set_nrings},
    {"timeout_ms", "0 …", "every operation's deadline; 0: for ever", set_timeout},
    {"unexpected_bytes", "0 …",
     "of one rank's messages that another keeps before it receives them; more wait at their sender",
     set_unexpected},
    {"window_bytes", "0 … 512 MiB",
     "of one lane's messages between hosts that lie far apart, how much may be under way to a rank",
     [](Config& c, std::string_view v) {
         return set_number(c.window_bytes, v, 0, int64_t{512} << 20);
     }},
    {"round_trip_ms", "-1, 0 … 60000",
     "how long a message takes between hosts and back, for choices; -1: measure it at the start",
     [](Config& c, std::string_view v) { return set_number(c.round_trip_ms, v, -1, 60'000); }},
    {"iface", "eth0, 10.0.0.1",
     "the interface or address to listen on; else the one on the way to a tcp store, or the first "
     "that is not loopback",
     [](Config& c, std::string_view v) -> Result<> { return c.iface = v, Result<>{}; }},
    {"ofi_provider", "tcp, verbs, efa, …", "libfabric's provider for the transport ofi",
     [](Config& c, std::string_view v) -> Result<> { return c.ofi_provider = v, Result<>{}; }},
    {"fabric_ports", "1 … 16",
     "UCX workers or libfabric endpoints of every rank; streams take turns",
     [](Config& c, std::string_view v) { return set_number(c.fabric_ports, v, 1, 16); }},
    {"host_id", "text", "act as another host than the neighbours on this machine",
     [](Config& c, std::string_view v) -> Result<> { return c.host_id = v, Result<>{}; }},
    {"algo", "ring, recursive_doubling, …",
     "the algorithm wherever it fits, instead of tutti's choice",
     [](Config& c, std::string_view v) -> Result<> { return c.algo = v, Result<>{}; }},
    {"tuning", "path", "a file of measured constants and choices, made by tutti-tune",
     [](Config& c, std::string_view v) -> Result<> { return c.tuning = v, Result<>{}; }},
    {"fit_ms", "0 … 60000",
     "measure this long at start-up to fit the cost model to this machine; 0: do not",
     [](Config& c, std::string_view v) { return set_number(c.fit_ms, v, 0, 60'000); }},
    {"check", "frames, strict", "strict: agree on every call before any data moves", set_check},
    {"progress", "thread, manual", "manual: the program calls tutti_progress, no thread of ours",
     set_progress},
    {"device", "library, staged, hierarchical, auto",
     "how collectives on device memory are done: by NCCL; through host memory, where ranks without "
     "a device may take part; by NCCL within each host and tutti between them; or as what the "
     "ranks "
     "have allows",
     set_device},
    {"device_tile_bytes", "4096 …",
     "of what goes between device and wire in tiles: bytes of one; the same on every rank",
     [](Config& c, std::string_view v) {
         return set_number(c.device_tile_bytes, v, 4096, int64_t{1} << 30);
     }},
    {"device_rings", "1 … 16",
     "how many NCCL communicators a communicator has side by side; the same on every rank",
     [](Config& c, std::string_view v) { return set_number(c.device_rings, v, 1, 16); }},
    {"device_split", "own, share",
     "whether what is split off a communicator on devices shares its NCCL resources, and its fate",
     set_device_split},
    {"cuda_library", "auto, path", "the CUDA driver to load where the program has not loaded it",
     [](Config& c, std::string_view v) -> Result<> { return c.cuda_library = v, Result<>{}; }},
    {"nccl_library", "path",
     "the NCCL to use; else the one that the program has loaded, or the system's",
     [](Config& c, std::string_view v) -> Result<> { return c.nccl_library = v, Result<>{}; }},
    {"reproducible", "0", "sums independent of the rank count",
     [](Config&, std::string_view v) { return refuse_unless_off(v, "reproducible summation"); }},
    {"tls", "0", "encrypted connections",
     [](Config&, std::string_view v) { return refuse_unless_off(v, "TLS"); }},
    {"insecure", "0, 1", "listen beyond loopback without a secret",
     [](Config& c, std::string_view v) { return set_bool(c.insecure, v); }},
    {"dump", "path",
     "when an operation fails: the flight recorder goes to PATH.RANK.jsonl, besides its end to the "
     "log",
     [](Config& c, std::string_view v) -> Result<> { return c.dump = v, Result<>{}; }},
    {"log", "trace, debug, info, warn, error, off", "what is logged to standard error", set_log},
};

// The variables of other launchers, the innermost first: torchrun runs inside what mpirun or srun
// started, and mpirun inside what Slurm or Kubernetes did. A launcher is recognised by its rank
// variable; one that says the size, too, goes before others.
struct Launcher {
    const char* rank;
    const char* size;  // nullptr: it has none
    const char* job;
    const char* attempt;  // how often it has restarted the ranks
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

// Without which a rank cannot tell the others anything.
bool places(std::string_view key) {
    constexpr std::string_view all[] = {"rank", "size",   "store",       "store_hosted",
                                        "job",  "secret", "secret_file", "insecure"};
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

// torchrun's own store listens on MASTER_PORT: tutti's is the next port.
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

// The server shows each caller a proof made with the secret, so a stranger can test guesses on it.
Result<> check_secret(std::string_view secret) {
    constexpr std::size_t least_bytes = 16;
    if (secret.empty() || secret.size() >= least_bytes) return {};
    return fail(Code::invalid,
                "the secret has {} bytes, at least {} random ones are needed: make one with "
                "`openssl rand -hex 32`",
                secret.size(), least_bytes);
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
    return fail(Code::invalid, "unknown setting '{}'; there are: {}", key, names);
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
        if (k.name == "secret_file" && secret && *secret) continue;  // as tutti-run has it
        TUTTI_TRY(take(config, k.name, variable_of(k.name).c_str(), get_env));
    }
    return config;
}

Result<Config> config_of_process() {
    auto config = config_from_environment(
        [](const char* name) { return static_cast<const char*>(std::getenv(name)); });
    static std::once_flag told;  // after the level of the log is known
    std::call_once(told, [] {
        for (const std::string& text : misspelt_variables(environ)) log::warn("{}", text);
    });
    return config;
}

Result<> check_whole(const Config& config) {
    const auto& [rank, size, store] = config.said;
    if (!rank.empty() && size.empty())
        return fail(Code::invalid,
                    "{} says that this is rank {}, but nothing says of how many: set TUTTI_SIZE on "
                    "every rank (1 for a job of one)",
                    rank, config.rank);
    if (rank.empty() && !size.empty() && config.size > 1)
        return fail(Code::invalid,
                    "{} says that there are {} ranks, but nothing says which of them this one is: "
                    "set TUTTI_RANK, to 0 … {}",
                    size, config.size, config.size - 1);
    if (rank.empty() && size.empty() && !store.empty() && !config.store.empty())
        return fail(Code::invalid,
                    "{} says that the ranks meet at '{}', but nothing says how many they are and "
                    "which of them this one is: set TUTTI_RANK and TUTTI_SIZE; for a job of one, "
                    "no store",
                    store, config.store);
    return {};
}

}  // namespace tutti
