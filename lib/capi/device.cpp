// Device streams at the C boundary.
#include "capi/boundary.h"

using tutti::Result;

extern "C" {

tutti_status tutti_comm_set_device_stream(tutti_comm* comm, void* device_stream) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_comm_set_device_stream", comm));
        return tutti::in_function("tutti_comm_set_device_stream",
                                  comm->impl->offload().set_queue(device_stream));
    });
}

tutti_status tutti_comm_use_device(tutti_comm* comm, int device) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_comm_use_device", comm));
        return tutti::in_function("tutti_comm_use_device", comm->impl->offload().use(device));
    });
}

tutti_status tutti_launch_start(void) {
    return tutti::guard([&]() -> Result<> {
        return tutti::in_function("tutti_launch_start", tutti::launch_batch().open());
    });
}

tutti_status tutti_launch_end(void) {
    return tutti::guard([&]() -> Result<> {
        return tutti::in_function("tutti_launch_end", tutti::launch_batch().close());
    });
}

tutti_status tutti_sync_calc_stream(tutti_comm* comm, void* calc_stream) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_sync_calc_stream", comm));
        return tutti::in_function("tutti_sync_calc_stream",
                                  comm->impl->offload().hold_own_queue(calc_stream));
    });
}

tutti_status tutti_sync_comm_stream(tutti_comm* comm, void* calc_stream) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_sync_comm_stream", comm));
        return tutti::in_function("tutti_sync_comm_stream",
                                  comm->impl->offload().hold_queue(calc_stream));
    });
}

tutti_status tutti_comm_sync(tutti_comm* comm, int64_t timeout_ms) {
    return tutti::guard(comm, [&]() -> Result<> {
        TUTTI_TRY(tutti::check_comm("tutti_comm_sync", comm));
        return comm->impl->offload().sync(timeout_ms);
    });
}

}  // extern "C"
