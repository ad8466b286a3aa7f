#include "environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "config/config.h"
#include "config/small_file.h"
#include "net/auth.h"

namespace tutti::run {
namespace {

constexpr std::size_t job_name_bytes = 8;
constexpr std::size_t secret_bytes = 32;

using Variables = std::map<std::string, std::string>;

Variables own_variables() {
    Variables variables;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string text = *entry;
        const auto at = text.find('=');
        if (at != std::string::npos) variables.emplace(text.substr(0, at), text.substr(at + 1));
    }
    return variables;
}

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

// The variables of torchrun. All ranks are on this machine, even with --hosts-act, so local ranks
// count all of them: each may have its own device.
void add_torchs(Variables& variables, int rank, int ranks, uint16_t port) {
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = variables["LOCAL_WORLD_SIZE"] = std::to_string(ranks);
    variables["MASTER_ADDR"] = "127.0.0.1";
    variables["MASTER_PORT"] = std::to_string(port);
}

// A process that joins the running job gets its rank from the job.
void add_place(Variables& variables, int rank, int ranks) {
    for (const char* name : {"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_JOIN", "RANK", "LOCAL_RANK",
                             "WORLD_SIZE", "LOCAL_WORLD_SIZE"})
        variables.erase(name);
    if (rank >= ranks) {
        variables["TUTTI_JOIN"] = "1";
    } else {
        variables["TUTTI_RANK"] = std::to_string(rank);
        variables["TUTTI_SIZE"] = std::to_string(ranks);
    }
}

}  // namespace

Result<Job> make_job(const Options& options) {
    Job job;
    TUTTI_ASSIGN(job.name, net::random_hex(job_name_bytes));
    job.secret = variable("TUTTI_SECRET");
    if (const std::string path = variable("TUTTI_SECRET_FILE");
        job.secret.empty() && !path.empty()) {
        auto secret = read_secret_file(path);
        if (!secret) return wrap(std::move(secret).error(), "TUTTI_SECRET_FILE");
        job.secret = *std::move(secret);
    }
    if (auto safe = check_secret(job.secret); !safe)
        return wrap(safe.error(), "TUTTI_SECRET or TUTTI_SECRET_FILE");
    if (job.secret.empty()) {
        TUTTI_ASSIGN(job.secret, net::random_hex(secret_bytes));
    }
    TUTTI_ASSIGN(job.torch_port, reserve_torch_port());
    job.store_url = options.store_url;
    job.hosts_store = options.store_url.empty();
    return job;
}

std::vector<std::string> rank_environment(const Options& options, const Job& job, int rank) {
    Variables variables = own_variables();
    variables.erase("TUTTI_SECRET_FILE");  // its contents are in TUTTI_SECRET
    variables.erase("TUTTI_STORE_HOSTED");
    const bool joins = rank >= options.ranks;
    add_place(variables, rank, options.ranks);
    variables["TUTTI_STORE"] = job.store_url;
    variables["TUTTI_JOB"] = job.name;
    variables["TUTTI_SECRET"] = job.secret;
    if (job.hosts_store) variables["TUTTI_STORE_HOSTED"] = "1";
    // All ranks are on this machine: nothing needs to be reachable from outside.
    variables.emplace("TUTTI_IFACE", "127.0.0.1");
    if (!options.transport.empty()) variables["TUTTI_TRANSPORT"] = options.transport;
    if (options.hosts_act > 0)
        variables["TUTTI_HOST_ID"] =
            fmt::format("host{}", rank % options.ranks * options.hosts_act / options.ranks);
    if (!joins) add_torchs(variables, rank, options.ranks, job.torch_port.number);
    if (isatty(STDERR_FILENO) == 1) variables["TUTTI_RUN_TERMINAL"] = "1";
    for (const auto& [name, value] : options.environment) variables[name] = value;
    std::vector<std::string> entries;
    for (const auto& [name, value] : variables) entries.push_back(name + "=" + value);
    return entries;
}

}  // namespace tutti::run
