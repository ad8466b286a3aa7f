// Estimates of time and counts of memory at the C boundary.
#include "tutti/inspect.h"
#include "capi/boundary.h"

using tutti::Result;

extern "C" {

tutti_status tutti_estimate_begin(tutti_comm* comm) {
    const char* const function = "tutti_estimate_begin";
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm(function, comm));
        TUTTI_TRY(comm->impl->may_call());
        return tutti::in_function(function, comm->impl->estimate().begin());
    });
}

tutti_status tutti_estimate_end(tutti_comm* comm, double* microseconds) {
    const char* const function = "tutti_estimate_end";
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm(function, comm));
        if (!microseconds) return tutti::null_argument(function, "microseconds");
        TUTTI_ASSIGN(*microseconds, tutti::in_function(function, comm->impl->estimate().end()));
        return {};
    });
}

tutti_status tutti_comm_memory(tutti_comm* comm, tutti_memory_stats* stats) {
    const char* const function = "tutti_comm_memory";
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm(function, comm));
        if (!stats) return tutti::null_argument(function, "stats");
        if (stats->struct_size < sizeof(tutti_memory_stats))
            return tutti::fail(tutti::Code::invalid,
                               "{}: stats.struct_size is {}, which is too small", function,
                               stats->struct_size)
                .advice("initialise the structure with TUTTI_MEMORY_STATS_INIT");
        const tutti::MemoryUse use = comm->impl->used_memory();
        stats->allocated_bytes = use.user.allocated;
        stats->registered_bytes = use.user.registered;
        stats->work_bytes = use.work;
        stats->recorder_bytes = use.recorder;
        stats->mapped_bytes = use.mapped;
        stats->cell_bytes = use.cells;
        return {};
    });
}

}  // extern "C"
