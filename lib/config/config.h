// Settings: one table of keys, read from the launcher's and tutti's environment variables or set by
// the program.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tutti {

enum class Check : uint8_t { frames, strict };
enum class ProgressMode : uint8_t { thread, manual };
/// The path that collectives on device memory take.
enum class DeviceMode : uint8_t { library, staged, hierarchical, automatic };

/// Whether a split communicator makes a device-library communicator of its own or shares its
/// parent's resources.
enum class DeviceSplit : uint8_t { own, share };

struct Config {
    Rank rank = 0;
    Rank size = 1;
    std::string store;
    bool store_hosted = false;
    bool store_in_job = false;  // the hosted store is a rank's, and gone with its process
    std::string job = "default";
    std::string secret;
    std::vector<std::string> transports = {"shm", "tcp"};
    int nrings = 2;
    int64_t timeout_ms = 300'000;
    std::size_t unexpected_bytes = std::size_t{64} << 20;
    std::size_t window_bytes = std::size_t{64} << 20;
    int64_t round_trip_ms = -1;  // of hosts that lie apart; -1: measured
    std::string iface;
    std::string ofi_provider;
    int fabric_ports = 1;  // of ucx and ofi
    std::string host_id;
    std::string algo;
    std::string tuning;  // a file of tutti-tune's
    int64_t fit_ms = 0;
    Check check = Check::frames;
    ProgressMode progress = ProgressMode::thread;
    bool insecure = false;
    DeviceMode device = DeviceMode::library;
    std::size_t device_tile_bytes = std::size_t{2} << 20;  // of what goes through pinned memory
    int device_rings = 1;                                  // NCCL's communicators side by side
    DeviceSplit device_split = DeviceSplit::own;
    std::string cuda_library, nccl_library;  // a path, or else what the process has
    std::string dump;            // where the flight recorder goes when an operation fails
    int longest_sleep_ms = 100;  // of a waiting thread between two looks at the clock: no key
    uint32_t attempt = 0;        // how often a launcher that restarts its ranks has done so: no key
    /// The error of a variable that does not place this rank: the other ranks hear of it when it
    /// joins.
    std::optional<Error> refused;
    /// Which variable or setting said it, for messages; empty: none did.
    struct Said {
        std::string rank, size, store;
    } said;
};

/// One key: its name (the environment's without TUTTI_, in lower case), what it means, and how a
/// value is taken over.
struct ConfigKey {
    std::string_view name;
    std::string_view value;    // what a value looks like: "0 … size-1"
    std::string_view meaning;  // one line, for docs/reference/configuration.md
    Result<> (*set)(Config& config, std::string_view value);
};
std::span<const ConfigKey> config_keys();
/// "TUTTI_NRINGS" of "nrings".
std::string variable_of(std::string_view key);

/// invalid: too short to withstand guessing; says how to make a better one. None ("") is none.
Result<> check_secret(std::string_view secret);

/// invalid: an unknown key (lists those there are) or a value that makes no sense.
Result<> set_config(Config& config, std::string_view key, std::string_view value);

/// Reads an environment variable: std::getenv, or a test's table. nullptr: not set.
using GetEnv = std::function<const char*(const char* name)>;

/// Defaults, then the launcher's variables, then TUTTI_*. An error only where what is wrong is
/// needed to reach the other ranks; anything else is kept in Config::refused.
Result<Config> config_from_environment(const GetEnv& get_env);

/// From this process's environment. Warns once in a process of variables that are misspelt.
Result<Config> config_of_process();

/// invalid: a part of what places a process in its job is said, and the rest is not. A rank
/// of which nobody knows the job would be a job of its own, and compute alone what all were to.
Result<> check_whole(const Config& config);

}  // namespace tutti
