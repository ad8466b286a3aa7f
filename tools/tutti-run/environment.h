// The environment variables of the ranks.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "options.h"
#include "torch_port.h"

namespace tutti::run {

/// The settings that all ranks of a job share. Each job has its own name and, unless the user gave
/// one, its own secret, so that the ranks of two jobs on one machine never connect to each other.
struct Job {
    std::string name;
    std::string secret;
    std::string store_url;
    TorchPort torch_port;
    bool hosts_store = true;  // tutti-run serves the store, so rank 0 must not
    bool first_gang = true;   // tutti-run's first gang; it truncates the logs
};

/// Chooses the name, the secret and torch's port. The secret is TUTTI_SECRET, the contents of
/// TUTTI_SECRET_FILE, or random.
Result<Job> make_job(const Options& options);

/// "NAME=VALUE" for one rank: this process's variables, the job's as tutti and as torch.distributed
/// read them, then --env. A rank that is no rank of the start joins the running job.
std::vector<std::string> rank_environment(const Options& options, const Job& job, int rank);

}  // namespace tutti::run
