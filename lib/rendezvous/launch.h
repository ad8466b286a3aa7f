// The launcher that started this process (mpirun, mpiexec or srun), as detected from the
// environment variables that it set: this process's rank, and how the ranks can find each other.
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"

namespace tutti {

/// The mechanism by which a job's ranks find each other if no setting names one.
enum class RendezvousKind : uint8_t {
    none,
    directory,  // all ranks are on one host: files in a private directory
    pmi,        // MPICH's launcher distributes the address of rank 0's store (PMI-1)
    pmix,       // Open MPI's launcher distributes it, or Slurm's with --mpi=pmix
    ports,      // a store on the first host of the Slurm step, at one of a few ports that each rank
                // derives from the step's number
};

struct Launch {
    std::string_view launcher;  // "Open MPI", "MPICH", "Slurm"; empty: none of them
    Rank rank = nobody, size = 0;
    Rank here = 0;         // ranks on this host; 0: the launcher does not say
    std::string identity;  // equal on this job's ranks on this host, and different for other jobs
                           // there; empty: the launcher sets nothing by which to tell them apart
    RendezvousKind rendezvous = RendezvousKind::none;
    std::string hosts;    // Slurm's list of the step's hosts, compressed (host_list.h)
    std::string step;     // Slurm's cluster, job, step and restart, joined by dots
    bool serves = false;  // for `ports`: this process serves the store. True for exactly one rank,
                          // which is on the first host
    std::string why;      // for `none`: why the ranks cannot find each other
    std::string remedy;  // for `none`: the advice, if there is a better one than to set TUTTI_STORE
};

/// Reads the variables, and asks the kernel which process made the socket that PMI_FD names. Never
/// fails: without a launcher, `launcher` is empty and `why` says so.
Launch detect_launch(const GetEnv& get_env);

}  // namespace tutti
