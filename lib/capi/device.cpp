// Device streams at the C boundary.
#include "capi/boundary.h"

using tutti::Result;

extern "C" {

tutti_status tutti_comm_set_device_stream(tutti_comm* comm, void* device_stream) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_set_device_stream", "comm");
        return comm->impl->set_device_stream(device_stream);
    });
}

tutti_status tutti_sync_calc_stream(tutti_comm* comm, void* calc_stream) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_sync_calc_stream", "comm");
        return comm->impl->hold_own_stream(calc_stream);
    });
}

tutti_status tutti_sync_comm_stream(tutti_comm* comm, void* calc_stream) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_sync_comm_stream", "comm");
        return comm->impl->hold_stream(calc_stream);
    });
}

tutti_status tutti_comm_sync(tutti_comm* comm, int64_t timeout_ms) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_sync", "comm");
        return comm->impl->sync(timeout_ms);
    });
}

}  // extern "C"
