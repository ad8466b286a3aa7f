// MPI's and Slurm's launchers, as detected from the environment of the processes that they start.
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"

namespace tutti {

/// The mechanism by which a job's ranks find each other if no setting names one.
enum class RendezvousKind : uint8_t {
    none,
    directory,  // all on one host: a private directory on it
    pmi,        // MPICH's launcher distributes rank 0's address (PMI-1)
    pmix,       // Open MPI's launcher does, or Slurm's with --mpi=pmix
    ports,      // on the first host of Slurm's list, at one of a few ports derived from the step
};

struct Launch {
    std::string_view launcher;  // "Open MPI", "MPICH", "Slurm"; empty: none of them
    Rank rank = nobody, size = 0;
    Rank here = 0;         // ranks on this host; 0: the launcher does not say
    std::string identity;  // equal on this job's ranks on this host, and different for other jobs
                           // there
    RendezvousKind rendezvous = RendezvousKind::none;
    std::string hosts;    // Slurm's list, compressed
    std::string step;     // Slurm's cluster, job, step and restart
    bool serves = false;  // ports: this process serves the store, as exactly one on the first host
                          // does
    std::string why;      // the reason why the ranks cannot meet
    std::string remedy;   // the advice, if there is a better one than to name a store
};

/// Reads the variables, and the owner of the descriptor that they name.
Launch detect_launch(const GetEnv& get_env);

}  // namespace tutti
