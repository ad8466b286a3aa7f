// Ranks that leave, at the C boundary.
#include "capi/boundary.h"

using tutti::Result;

extern "C" {

tutti_status tutti_comm_leave(tutti_comm* comm) {
    const char* const function = "tutti_comm_leave";
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm(function, comm));
        return tutti::in_function(function, comm->impl->leave());
    });
}

}  // extern "C"
