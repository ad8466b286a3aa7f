// Estimates of time at the C boundary.
#include "capi/boundary.h"
#include "tutti/inspect.h"

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

}  // extern "C"
