// Each setting gets a bad value, once through tutti_config_set and once through the environment.
#include <algorithm>
#include <memory>

#include "errors/areas.h"
#include "errors/jobs.h"
#include "errors/setting_keys.h"

namespace errors_test::settings {
namespace {

/// A setting and a value that the setting itself refuses.
struct BadValue {
    const char* key;
    const char* value;
    tutti_status status = TUTTI_ERR_INVALID;
};
constexpr BadValue bad_values[] = {
    {"rank", "-1"},
    {"rank", "first"},
    {"size", "0"},
    {"size", "99999999999"},
    {"store_hosted", "perhaps"},
    {"join", "later"},
    {"secret", "short"},
    {"secret_file", "/nonexistent/secret"},
    {"transport", "shm,carrier_pigeon"},
    {"transport", "shm,,tcp"},
    {"transport", ""},
    {"nrings", "0"},
    {"nrings", "17"},
    {"timeout_ms", "-5"},
    {"timeout_ms", "2s"},
    {"unexpected_bytes", "64M"},
    {"window_bytes", "1000000000000"},
    {"round_trip_ms", "60001"},
    {"fabric_ports", "0"},
    {"heartbeat_ms", "99"},
    {"algo", "magic"},
    {"fit_ms", "-1"},
    {"check", "maybe"},
    {"progress", "sometimes"},
    {"device", "quantum"},
    {"device_tile_bytes", "1"},
    {"device_rings", "0"},
    {"device_split", "rent"},
    {"reproducible", "1", TUTTI_ERR_UNSUPPORTED},
    {"reproducible", "often"},
    {"tls", "1", TUTTI_ERR_UNSUPPORTED},
    {"insecure", "very"},
    {"log", "chatty"},
};

/// A setting that takes any text, and a value that the start of a job refuses. A store and an
/// address are for jobs of two ranks.
struct BadAtStart {
    const char* key;
    const char* value;
    tutti_status status;
    const char* names;
    int ranks = 2;
};
constexpr BadAtStart bad_at_start[] = {
    {"store", "ftp://host/dir", TUTTI_ERR_INVALID, "ftp://host/dir"},
    {"tuning", "/nonexistent/tuning", TUTTI_ERR_INVALID, "/nonexistent/tuning", 1},
    {"iface", "no_such_interface", TUTTI_ERR_INVALID, "no_such_interface"},
    {"cuda_library", "/nonexistent/libcuda.so", TUTTI_ERR_UNSUPPORTED, "/nonexistent/libcuda.so"},
};

/// A setting for which no value makes a program fail.
struct NoBadValue {
    const char* key;
    const char* reason;
};
constexpr NoBadValue no_bad_values[] = {
    {"job", "any text keeps jobs apart"},
    {"host_id", "any text is a host"},
    {"ofi_provider",
     "a provider that is not there is an error of the transport ofi only, which "
     "this build or machine may lack"},
    {"nccl_library", "NCCL is loaded by the first call on device memory, which needs a GPU"},
    {"dump", "a file that cannot be written must not hide the failure whose record it was to hold"},
};

void check_rows(Ledger& ledger) {
    for (const std::string& key : setting_keys()) {
        const auto is_key = [&](const auto& row) { return row.key == key; };
        const bool has_bad = std::any_of(std::begin(bad_values), std::end(bad_values), is_key) ||
                             std::any_of(std::begin(bad_at_start), std::end(bad_at_start), is_key);
        const bool has_reason =
            std::any_of(std::begin(no_bad_values), std::end(no_bad_values), is_key);
        if (has_bad == has_reason)
            ledger.broken(key,
                          "this setting needs a row with a bad value, or one with the reason why "
                          "it has none");
    }
}

void set_bad_values(Ledger& ledger) {
    const Configuration config(ledger, {});
    for (const BadValue& bad : bad_values)
        ledger.take(std::string("setting ") + bad.key + " to '" + bad.value + "'",
                    tutti_config_set(config.get(), bad.key, bad.value), {bad.status, bad.key});
    ledger.take("an unknown setting", tutti_config_set(config.get(), "colour", "red"),
                {.names = "colour"});
}

// The environment's settings are those of a communicator that is made without a configuration.
tutti_status create_from_environment() {
    tutti_comm* comm = nullptr;
    const tutti_status status = tutti_comm_create(nullptr, &comm);
    if (status == TUTTI_OK) tutti_comm_destroy(comm);
    return status;
}

void set_bad_variables(Ledger& ledger) {
    for (const BadValue& bad : bad_values) {
        const std::string name = variable_of(bad.key);
        const Variable variable(name, bad.value);
        ledger.take("variable " + name + "='" + bad.value + "'", create_from_environment(),
                    {bad.status, name});
    }
    for (const BadAtStart& bad : bad_at_start) {
        const test::Folder folder;
        const Variable rank("TUTTI_RANK", "0"), size("TUTTI_SIZE", std::to_string(bad.ranks)),
            transport("TUTTI_TRANSPORT", "tcp"), store("TUTTI_STORE", "file://" + folder.path());
        const std::string name = variable_of(bad.key);
        const Variable variable(name, bad.value);
        ledger.take("variable " + name + "=" + bad.value, create_from_environment(),
                    {bad.status, bad.names});
    }
}

/// Variables that place a process in a job, and the one that the error names.
struct Launched {
    const char* what;
    std::vector<std::pair<const char*, const char*>> variables;
    const char* names;
};
const Launched half_launched[] = {
    {"a rank without a size", {{"TUTTI_RANK", "0"}}, "TUTTI_RANK"},
    {"a size without a rank", {{"TUTTI_SIZE", "2"}}, "TUTTI_SIZE"},
    {"a store alone", {{"TUTTI_STORE", "tcp://127.0.0.1:29999"}}, "TUTTI_STORE"},
    {"torchrun's rank alone", {{"RANK", "1"}}, "RANK"},
    {"Open MPI's rank alone", {{"OMPI_COMM_WORLD_RANK", "1"}}, "OMPI_COMM_WORLD_RANK"},
    {"MPICH's rank alone", {{"PMI_RANK", "1"}}, "PMI_RANK"},
    {"Slurm's rank alone", {{"SLURM_PROCID", "1"}}, "SLURM_PROCID"},
    {"a job's index alone", {{"JOB_COMPLETION_INDEX", "1"}}, "JOB_COMPLETION_INDEX"},
    {"a rank that is no number", {{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK"},
    {"a size that is no number", {{"RANK", "0"}, {"WORLD_SIZE", "two"}}, "WORLD_SIZE"},
    {"a restart count that is no number",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TORCHELASTIC_RESTART_COUNT", "x"}},
     "TORCHELASTIC_RESTART_COUNT"},
    {"a port that is none",
     {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "high"}},
     "MASTER_PORT"},
    {"a rank past the end",
     {{"TUTTI_RANK", "5"}, {"TUTTI_SIZE", "2"}, {"TUTTI_STORE", "file:///tmp"}},
     "rank 5"},
    {"two ranks without a store", {{"TUTTI_RANK", "0"}, {"TUTTI_SIZE", "2"}}, "store"},
};

void launch_by_half(Ledger& ledger) {
    for (const Launched& launched : half_launched) {
        std::vector<std::unique_ptr<Variable>> variables;
        for (const auto& [name, value] : launched.variables)
            variables.push_back(std::make_unique<Variable>(name, value));
        ledger.take(std::string("launched with ") + launched.what, create_from_environment(),
                    {.names = launched.names});
    }
}

void start_with_bad_values(Ledger& ledger) {
    at_once(bad_at_start, [&](const BadAtStart& bad) {
        const test::Folder folder;
        Settings settings = settings_of(folder, 0, bad.ranks);
        settings.insert(settings.end(), {{"transport", "tcp"}, {bad.key, bad.value}});
        ledger.take(std::string("starting with ") + bad.key + " " + bad.value,
                    try_to_join(ledger, settings), {bad.status, bad.names});
    });
}

}  // namespace

void provoke_settings(Ledger& ledger) {
    check_rows(ledger);
    set_bad_values(ledger);
    start_with_bad_values(ledger);
}

void provoke_environment(Ledger& ledger) {
    set_bad_variables(ledger);
    launch_by_half(ledger);
}

}  // namespace errors_test::settings
