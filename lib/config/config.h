// Settings: one table of keys, read from the launcher's and tutti's environment variables or set by
// the program.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace tutti {

enum class Check : uint8_t { frames, strict };
enum class ProgressMode : uint8_t { thread, manual };
/// The path of collectives on device memory.
enum class DeviceMode : uint8_t { library, staged, hierarchical, automatic };

/// Whether a split communicator makes a device-library communicator of its own or shares its
/// parent's resources.
enum class DeviceSplit : uint8_t { own, share };

struct Config {
    Rank rank = 0;
    Rank size = 1;
    std::string store;
    bool store_hosted = false;
    bool store_in_job = false;  // a rank hosts the store, which ends with its process
    std::string job = "default";
    std::string secret;
    std::vector<std::string> transports = {"shm", "tcp"};
    int nrings = 2;
    int64_t timeout_ms = 300'000;
    bool join = false;                    // join a running job, which calls tutti_comm_grow
    std::optional<TimeLimit> join_limit;  // if it is not timeout_ms, or runs already: no key
    /// The store that is given to a join is one that this process has opened itself: no key.
    bool shares_store = false;
    bool by_handles = false;      // the ranks meet by handles, and not in a store: no key
    int64_t heartbeat_ms = 5000;  // 0: off
    std::size_t unexpected_bytes = std::size_t{64} << 20;
    std::size_t window_bytes = std::size_t{64} << 20;
    int64_t round_trip_ms = -1;  // between hosts that are far apart; -1: measured
    std::string iface;
    std::string ofi_provider;
    int fabric_ports = 1;  // for ucx and ofi
    std::string host_id;
    std::string algo;
    std::string tuning;  // a file that tutti-tune wrote
    int64_t fit_ms = 0;
    Check check = Check::frames;
    ProgressMode progress = ProgressMode::thread;
    bool insecure = false;
    DeviceMode device = DeviceMode::library;
    std::size_t device_tile_bytes = std::size_t{2} << 20;  // of data through pinned memory
    int device_rings = 1;                                  // NCCL communicators in parallel
    DeviceSplit device_split = DeviceSplit::own;
    std::string cuda_library, nccl_library;  // a path, or else the library that the process has
                                             // loaded
    std::string dump;  // the flight recorder of a failed operation goes to PATH.RANK.jsonl
    int longest_sleep_ms = 100;    // the longest time between two deadline checks of a waiting
                                   // thread: no key
    uint32_t attempt = 0;          // the number of restarts by a launcher: no key
    bool exchange_records = true;  // false in tests, for ranks of larger jobs and of version 0.1.0,
                                   // which only look records up in the store: no key
    /// The error of a variable that is not needed to reach the other ranks: they learn of it when
    /// this rank joins.
    std::optional<Error> refused;
    /// The variable or setting that set each of these, for error messages; empty: none did.
    struct Said {
        std::string rank, size, store;
    } said;
};

/// One key: its name (that of the environment variable without TUTTI_, in lower case), its meaning,
/// and the function that sets it.
struct ConfigKey {
    std::string_view name;
    std::string_view value;    // the format of a value: "0 … size-1"
    std::string_view meaning;  // one line, for docs/reference/configuration.md
    Result<> (*set)(Config& config, std::string_view value);
};
std::span<const ConfigKey> config_keys();
/// "TUTTI_NRINGS" of "nrings".
std::string variable_of(std::string_view key);

/// invalid: too short to resist guessing; the error says how to make a better one. "" means no
/// secret.
Result<> check_secret(std::string_view secret);

/// invalid: an unknown key (lists the keys) or a value out of range.
Result<> set_config(Config& config, std::string_view key, std::string_view value);

/// Reads an environment variable: std::getenv, or a test's table. nullptr: not set.
using GetEnv = std::function<const char*(const char* name)>;

/// Defaults, then the launcher's variables, then TUTTI_*. Fails only for a setting that is needed
/// to reach the other ranks; any other error is kept in Config::refused.
Result<Config> config_from_environment(const GetEnv& get_env);

/// From this process's environment. Warns once per process of misspelt variables.
Result<Config> config_of_process();

/// invalid: some of the settings that place a process in its job are given, and others are missing.
/// A rank without a job would be a job of its own, and compute the work of all ranks alone.
Result<> check_whole(const Config& config);

}  // namespace tutti
