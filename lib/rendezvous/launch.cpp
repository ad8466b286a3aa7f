#include "rendezvous/launch.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "os/process.h"
#include "rendezvous/host_list.h"

namespace tutti {
namespace {

/// The names of one launcher's variables. nullptr: it sets none for that.
struct Variables {
    std::string_view launcher;
    const char* rank;
    const char* size;
    const char* here;
    std::array<const char*, 6> identity;  // together they name the job on this host
};
// The innermost launcher first, as in config/config.cpp.
constexpr Variables open_mpi_variables{
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMIX_SERVER_URI2", "PMIX_SERVER_URI3",
     "PMIX_SERVER_URI4", "PMIX_SERVER_URI41"}};
constexpr Variables mpich_variables{"MPICH",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALNRANKS",
                                    {"PMI_JOBID", "PMI_PORT", nullptr, nullptr, nullptr, nullptr}};
constexpr Variables slurm_variables{"Slurm",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    nullptr,
                                    {"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID",
                                     "SLURM_RESTART_COUNT", nullptr, nullptr}};

std::string text_of(const GetEnv& get_env, const char* name) {
    const char* value = name ? get_env(name) : nullptr;
    return value ? value : "";
}

Rank number_of(const GetEnv& get_env, const char* name, Rank otherwise) {
    const std::string value = text_of(get_env, name);
    Rank parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    return error == std::errc{} && end == value.data() + value.size() && parsed >= 0 ? parsed
                                                                                     : otherwise;
}

const Variables* find_launcher(const GetEnv& get_env) {
    if (get_env(open_mpi_variables.rank)) return &open_mpi_variables;
    // srun --mpi=pmi2 sets PMI_RANK too, but speaks PMI-2, which tutti does not.
    const bool of_slurm = get_env("SLURM_STEP_ID") && !get_env(mpich_variables.here);
    if (get_env(mpich_variables.rank) && !of_slurm) return &mpich_variables;
    return get_env(slurm_variables.rank) ? &slurm_variables : nullptr;
}

// MPICH's launcher gives a process no name of its job, but gives it a socket. The process that made
// the socket, and its start time, are the same for all ranks on a host.
std::string maker_of_socket(int fd) {
    ucred maker{};
    socklen_t bytes = sizeof maker;
    if (fd < 0 || ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &bytes) != 0 || maker.pid <= 0)
        return {};
    return fmt::format("{} {}", maker.pid, process_field(maker.pid, ProcessField::start_ticks));
}

std::string identity_of(const Variables& variables, const GetEnv& get_env) {
    std::string identity;
    for (const char* name : variables.identity)
        if (const std::string value = text_of(get_env, name); !value.empty())
            identity += fmt::format("{}={}\n", name, value);
    if (&variables == &mpich_variables)
        if (const auto maker = maker_of_socket(number_of(get_env, "PMI_FD", -1)); !maker.empty())
            identity += fmt::format("PMI_FD={}\n", maker);
    return identity;
}

std::string step_of(const GetEnv& get_env) {
    std::string step;
    for (const char* name : slurm_variables.identity)
        if (const std::string value = text_of(get_env, name); !value.empty())
            step += (step.empty() ? "" : ".") + value;
    return step;
}

// The rank that serves the store is not always rank 0: srun -m arbitrary and heterogeneous steps
// place ranks in any order, and the list of hosts is sorted.
bool is_first_on_first_host(const Launch& launch, const GetEnv& get_env) {
    const std::string host = text_of(get_env, "SLURMD_NODENAME");
    const auto hosts = expand_host_list(launch.hosts);
    const bool listed = hosts && std::find(hosts->begin(), hosts->end(), host) != hosts->end();
    if (!listed || !get_env("SLURM_LOCALID")) return launch.rank == 0;
    return host == hosts->front() && number_of(get_env, "SLURM_LOCALID", nobody) == 0;
}

void choose_rendezvous(Launch& launch, const Variables& variables, const GetEnv& get_env) {
    const bool step = get_env("SLURM_STEP_ID") != nullptr;
    if (&variables == &slurm_variables && !step) {
        launch.why = "this is the process of a batch script, not a rank of a Slurm step";
        launch.remedy = "start the ranks with srun";
    } else if (launch.identity.empty()) {
        launch.why = fmt::format("{} has set no variable that names the job", launch.launcher);
    } else if (launch.here == launch.size) {
        launch.rendezvous = RendezvousKind::directory;
    } else if (get_env("PMIX_NAMESPACE")) {
        launch.rendezvous = RendezvousKind::pmix;
    } else if (&variables == &mpich_variables && get_env("PMI_FD")) {
        launch.rendezvous = RendezvousKind::pmi;
    } else if (&variables == &slurm_variables && !launch.hosts.empty()) {
        launch.rendezvous = RendezvousKind::ports;
    } else {
        launch.why =
            fmt::format("the ranks are on several hosts, and {} does not give their addresses",
                        launch.launcher);
    }
}

}  // namespace

Launch detect_launch(const GetEnv& get_env) {
    Launch launch;
    const Variables* variables = find_launcher(get_env);
    if (!variables) {
        launch.why = "no launcher (mpirun, mpiexec, srun) has set its variables for this process";
        return launch;
    }
    launch.launcher = variables->launcher;
    launch.rank = number_of(get_env, variables->rank, nobody);
    launch.size = number_of(get_env, variables->size, 0);
    launch.here = number_of(get_env, variables->here, 0);
    launch.identity = identity_of(*variables, get_env);
    if (variables == &slurm_variables) {
        launch.hosts = text_of(get_env, "SLURM_STEP_NODELIST");
        launch.step = step_of(get_env);
        launch.serves = is_first_on_first_host(launch, get_env);
        if (number_of(get_env, "SLURM_STEP_NUM_NODES", 0) == 1) launch.here = launch.size;
    }
    choose_rendezvous(launch, *variables, get_env);
    return launch;
}

}  // namespace tutti
