// Ranks that join and leave, at the C boundary.
#include "comm/growth/growth.h"
#include "capi/boundary.h"

using tutti::Result;

extern "C" {

tutti_status tutti_comm_grow(tutti_comm* comm, int newcomers, tutti_comm** larger) {
    const char* const function = "tutti_comm_grow";
    return tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        if (!larger) return tutti::null_argument(function, "larger");
        *larger = nullptr;
        TUTTI_ASSIGN(auto made, tutti::grow(*comm->impl, newcomers));
        *larger = new tutti_comm{std::move(made), 0, {}};
        return {};
    });
}

tutti_status tutti_comm_waiting(tutti_comm* comm, int* newcomers) {
    const char* const function = "tutti_comm_waiting";
    return tutti::guard(comm, [&]() -> Result<> {
        if (!comm) return tutti::null_argument(function, "comm");
        if (!newcomers) return tutti::null_argument(function, "newcomers");
        *newcomers = 0;
        TUTTI_ASSIGN(const std::size_t waiting, tutti::count_waiting(*comm->impl));
        *newcomers = static_cast<int>(waiting);
        return {};
    });
}

tutti_status tutti_comm_leave(tutti_comm* comm) {
    const char* const function = "tutti_comm_leave";
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_member(function, comm));
        TUTTI_TRY(tutti::in_function(function, comm->impl->may_call()));
        comm->impl->destroy(tutti::Communicator::UserHandle::kept);
        return {};
    });
}

}  // extern "C"
