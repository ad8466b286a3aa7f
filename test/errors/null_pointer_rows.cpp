// NULL for every pointer of tutti.h.
#include "errors/areas.h"
#include "errors/jobs.h"
#include "errors/null_calls.h"
#include "tutti/inspect.h"

namespace errors_test::null_pointers {
namespace {

#define REFUSES(function)                              \
    {                                                  \
#function, [] { return with_nulls(function); } \
    }

const Refusal refusals[] = {
    // With no elements there is nothing to convert, and the pointers may be NULL.
    {"tutti_convert",
     [] { return tutti_convert(nullptr, TUTTI_FLOAT32, nullptr, TUTTI_FLOAT32, 1); }},
    REFUSES(tutti_config_create),
    REFUSES(tutti_config_set),
    REFUSES(tutti_config_set_store),
    REFUSES(tutti_comm_create),
    REFUSES(tutti_comm_split),
    REFUSES(tutti_comm_split_host),
    REFUSES(tutti_comm_dup),
    REFUSES(tutti_comm_abort),
    REFUSES(tutti_comm_revoke),
    REFUSES(tutti_comm_grow),
    REFUSES(tutti_comm_leave),
    REFUSES(tutti_comm_waiting),
    REFUSES(tutti_comm_shrink),
    REFUSES(tutti_comm_shrink_without),
    REFUSES(tutti_comm_agree),
    REFUSES(tutti_comm_lost),
    REFUSES(tutti_comm_get_handle),
    REFUSES(tutti_comm_reconfigure),
    REFUSES(tutti_comm_explain),
    {"tutti_comm_algorithm",
     [] {
         const char* name = tutti_comm_algorithm(nullptr, nullptr, 1, TUTTI_FLOAT32, TUTTI_SUM);
         return name ? TUTTI_OK : TUTTI_ERR_INVALID;
     }},
    REFUSES(tutti_comm_dump),
    REFUSES(tutti_mem_alloc),
    REFUSES(tutti_mem_alloc_device),
    REFUSES(tutti_mem_register),
    REFUSES(tutti_mem_deregister),
    REFUSES(tutti_estimate_begin),
    REFUSES(tutti_estimate_end),
    REFUSES(tutti_comm_memory),
    REFUSES(tutti_comm_set_device_stream),
    REFUSES(tutti_comm_use_device),
    REFUSES(tutti_sync_calc_stream),
    REFUSES(tutti_sync_comm_stream),
    REFUSES(tutti_comm_sync),
    REFUSES(tutti_op_create),
    REFUSES(tutti_op_create_premul_sum),
    REFUSES(tutti_allreduce),
    REFUSES(tutti_allreduce_multi),
    REFUSES(tutti_broadcast),
    REFUSES(tutti_barrier),
    REFUSES(tutti_reduce),
    REFUSES(tutti_allgather),
    REFUSES(tutti_allgatherv),
    REFUSES(tutti_reduce_scatter),
    REFUSES(tutti_reduce_scatterv),
    REFUSES(tutti_gather),
    REFUSES(tutti_gatherv),
    REFUSES(tutti_scatter),
    REFUSES(tutti_scatterv),
    REFUSES(tutti_alltoall),
    REFUSES(tutti_alltoallv),
    REFUSES(tutti_scan),
    REFUSES(tutti_exscan),
    REFUSES(tutti_iallreduce),
    REFUSES(tutti_iallreduce_multi),
    REFUSES(tutti_ibroadcast),
    REFUSES(tutti_ibarrier),
    REFUSES(tutti_ireduce),
    REFUSES(tutti_iallgather),
    REFUSES(tutti_iallgatherv),
    REFUSES(tutti_ireduce_scatter),
    REFUSES(tutti_ireduce_scatterv),
    REFUSES(tutti_igather),
    REFUSES(tutti_igatherv),
    REFUSES(tutti_iscatter),
    REFUSES(tutti_iscatterv),
    REFUSES(tutti_ialltoall),
    REFUSES(tutti_ialltoallv),
    REFUSES(tutti_iscan),
    REFUSES(tutti_iexscan),
    REFUSES(tutti_send),
    REFUSES(tutti_recv),
    REFUSES(tutti_sendrecv),
    REFUSES(tutti_isend),
    REFUSES(tutti_irecv),
    REFUSES(tutti_group_start),
    REFUSES(tutti_group_end),
    REFUSES(tutti_request_on_complete),
    REFUSES(tutti_request_fd),
    REFUSES(tutti_progress),
    REFUSES(tutti_progress_fd),
    REFUSES(tutti_plan_allreduce),
    REFUSES(tutti_plan_allreduce_multi),
    REFUSES(tutti_plan_broadcast),
    REFUSES(tutti_plan_barrier),
    REFUSES(tutti_plan_reduce),
    REFUSES(tutti_plan_allgather),
    REFUSES(tutti_plan_allgatherv),
    REFUSES(tutti_plan_reduce_scatter),
    REFUSES(tutti_plan_reduce_scatterv),
    REFUSES(tutti_plan_gather),
    REFUSES(tutti_plan_gatherv),
    REFUSES(tutti_plan_scatter),
    REFUSES(tutti_plan_scatterv),
    REFUSES(tutti_plan_alltoall),
    REFUSES(tutti_plan_alltoallv),
    REFUSES(tutti_plan_scan),
    REFUSES(tutti_plan_exscan),
    REFUSES(tutti_plan_start),
    REFUSES(tutti_plan_run),
};

#undef REFUSES

const Answer answers[] = {
    {"tutti_algorithm_name", [] { return tutti_algorithm_name(nullptr, 0) == nullptr; }},
    {"tutti_algorithm_summary",
     [] { return tutti_algorithm_summary(nullptr, nullptr) == nullptr; }},
    {"tutti_config_destroy", [] { return tutti_config_destroy(nullptr), true; }},
    {"tutti_comm_rank", [] { return tutti_comm_rank(nullptr) == -1; }},
    {"tutti_comm_size", [] { return tutti_comm_size(nullptr) == -1; }},
    {"tutti_comm_ring_count", [] { return tutti_comm_ring_count(nullptr) == -1; }},
    {"tutti_comm_local_rank", [] { return tutti_comm_local_rank(nullptr) == -1; }},
    {"tutti_comm_local_size", [] { return tutti_comm_local_size(nullptr) == -1; }},
    {"tutti_comm_host_count", [] { return tutti_comm_host_count(nullptr) == -1; }},
    {"tutti_comm_host_of", [] { return tutti_comm_host_of(nullptr, 0) == -1; }},
    {"tutti_comm_destroy", [] { return tutti_comm_destroy(nullptr) == TUTTI_OK; }},
    {"tutti_mem_free", [] { return tutti_mem_free(nullptr, nullptr) == TUTTI_OK; }},
    {"tutti_wait", [] { return tutti_wait(nullptr, 0) == TUTTI_OK; }},
    {"tutti_test", [] { return tutti_test(nullptr) == TUTTI_OK; }},
    {"tutti_plan_destroy", [] { return tutti_plan_destroy(nullptr), true; }},
};

// NULL behind a communicator that is there, so that another argument is the one at fault.
struct Behind {
    const char* function;
    tutti_status (*call)(tutti_comm* comm);
};

#define BEHIND_COMM(function)                                                          \
    {                                                                                  \
#function, [](tutti_comm * comm) { return with_nulls_behind(function, comm); } \
    }

constexpr Behind behind_comm[] = {
    BEHIND_COMM(tutti_comm_split),
    BEHIND_COMM(tutti_comm_split_host),
    BEHIND_COMM(tutti_comm_dup),
    BEHIND_COMM(tutti_comm_shrink),
    BEHIND_COMM(tutti_comm_shrink_without),
    BEHIND_COMM(tutti_comm_agree),
    BEHIND_COMM(tutti_comm_lost),
    BEHIND_COMM(tutti_comm_explain),
    BEHIND_COMM(tutti_mem_alloc),
    BEHIND_COMM(tutti_mem_alloc_device),
    BEHIND_COMM(tutti_mem_register),
    BEHIND_COMM(tutti_estimate_end),
    BEHIND_COMM(tutti_comm_memory),
    BEHIND_COMM(tutti_op_create_premul_sum),
    BEHIND_COMM(tutti_allreduce_multi),
    BEHIND_COMM(tutti_allgatherv),
    BEHIND_COMM(tutti_reduce_scatterv),
    BEHIND_COMM(tutti_gatherv),
    BEHIND_COMM(tutti_scatterv),
    BEHIND_COMM(tutti_alltoallv),
    BEHIND_COMM(tutti_iallreduce),
    BEHIND_COMM(tutti_iallreduce_multi),
    BEHIND_COMM(tutti_ibroadcast),
    BEHIND_COMM(tutti_ibarrier),
    BEHIND_COMM(tutti_ireduce),
    BEHIND_COMM(tutti_iallgather),
    BEHIND_COMM(tutti_iallgatherv),
    BEHIND_COMM(tutti_ireduce_scatter),
    BEHIND_COMM(tutti_ireduce_scatterv),
    BEHIND_COMM(tutti_igather),
    BEHIND_COMM(tutti_igatherv),
    BEHIND_COMM(tutti_iscatter),
    BEHIND_COMM(tutti_iscatterv),
    BEHIND_COMM(tutti_ialltoall),
    BEHIND_COMM(tutti_ialltoallv),
    BEHIND_COMM(tutti_iscan),
    BEHIND_COMM(tutti_iexscan),
    BEHIND_COMM(tutti_isend),
    BEHIND_COMM(tutti_irecv),
    BEHIND_COMM(tutti_progress_fd),
    BEHIND_COMM(tutti_plan_allreduce),
    BEHIND_COMM(tutti_plan_allreduce_multi),
    BEHIND_COMM(tutti_plan_broadcast),
    BEHIND_COMM(tutti_plan_barrier),
    BEHIND_COMM(tutti_plan_reduce),
    BEHIND_COMM(tutti_plan_allgather),
    BEHIND_COMM(tutti_plan_allgatherv),
    BEHIND_COMM(tutti_plan_reduce_scatter),
    BEHIND_COMM(tutti_plan_reduce_scatterv),
    BEHIND_COMM(tutti_plan_gather),
    BEHIND_COMM(tutti_plan_gatherv),
    BEHIND_COMM(tutti_plan_scatter),
    BEHIND_COMM(tutti_plan_scatterv),
    BEHIND_COMM(tutti_plan_alltoall),
    BEHIND_COMM(tutti_plan_alltoallv),
    BEHIND_COMM(tutti_plan_scan),
    BEHIND_COMM(tutti_plan_exscan),
};

#undef BEHIND_COMM

}  // namespace

void provoke_null_pointers(Ledger& ledger) {
    call_with_nulls(ledger,
                    {{"tutti.h", "plans.h", "recovery.h", "inspect.h"}, refusals, answers, {}},
                    &Ledger::take);
}

void provoke_missing_arguments(Ledger& ledger) {
    const Alone alone(ledger);
    for (const Behind& row : behind_comm)
        ledger.take(std::string(row.function) + " with a communicator and NULL",
                    row.call(alone.comm()), {.names = row.function, .reporter = 0});
}

}  // namespace errors_test::null_pointers
