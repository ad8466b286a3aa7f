// MPI's and Slurm's launchers, as the processes that they start see them.
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"

namespace tutti {

/// The mechanism by which a job's ranks find each other if no setting names one.
enum class RendezvousKind : uint8_t {
    none,       // not at all
    directory,  // all on one host: a private directory on it
    pmi,        // MPICH's launcher hands rank 0's address round (PMI-1)
    pmix,       // so does Open MPI's, or Slurm's with --mpi=pmix
    ports,  // on the first host of Slurm's list, at one of a few ports that follow from the step
};

struct Launch {
    std::string_view launcher;  // "Open MPI", "MPICH", "Slurm"; empty: none of these
    Rank rank = nobody, size = 0;
    Rank here = 0;         // ranks on this host; 0: the launcher does not say
    std::string identity;  // the same for this job's ranks on this host, and for no other job there
    RendezvousKind rendezvous = RendezvousKind::none;
    std::string hosts;    // Slurm's list, compressed
    std::string step;     // Slurm's cluster, job, step and restart
    bool serves = false;  // ports: this process serves the store, as one does on the first host
    std::string why;      // the ranks cannot meet
    std::string remedy;   // an imperative, where there is a better one than to name a store
};

/// Reads variables, and the owner of the descriptor that they name.
Launch detect_launch(const GetEnv& get_env);

}  // namespace tutti
