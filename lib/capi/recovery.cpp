// The calls after a failure at the C boundary.
#include "capi/boundary.h"

extern "C" {

tutti_status tutti_comm_revoke(tutti_comm* comm) {
    return tutti::guard(comm, [&]() -> tutti::Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_comm_revoke", comm));
        comm->impl->revoke();
        return {};
    });
}

}  // extern "C"
