// Device streams at the C boundary.
#include "capi/boundary.h"
#include "gpu/device_group_batch.h"

using tutti::Result;

extern "C" {

tutti_status tutti_comm_set_device_stream(tutti_comm* comm, void* device_stream) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_set_device_stream", "comm");
        return comm->impl->set_device_stream(device_stream);
    });
}

tutti_status tutti_comm_use_device(tutti_comm* comm, int device) {
    return tutti::guard([&]() -> Result<> {
        if (!comm) return tutti::null_argument("tutti_comm_use_device", "comm");
        return comm->impl->use_device(device);
    });
}

tutti_status tutti_launch_start(void) {
    return tutti::guard([&]() -> Result<> {
        tutti::DeviceGroupBatch::here().open();
        return {};
    });
}

tutti_status tutti_launch_end(void) {
    return tutti::guard([&]() -> Result<> { return tutti::DeviceGroupBatch::here().close(); });
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
        TUTTI_TRY(tutti::check_comm("tutti_comm_sync", comm));
        return comm->impl->sync(timeout_ms);
    });
}

}  // extern "C"
