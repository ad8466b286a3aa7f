#include "gpu/device_queues.h"

#include <optional>

namespace tutti {

Result<> DeviceQueues::check_owner(void* device_stream) {
    if (device_stream == side_.devices.checked_stream) return {};
    TUTTI_TRY(side_.devices.context->owns(static_cast<device::StreamHandle>(device_stream)));
    side_.devices.checked_stream = device_stream;
    return {};
}

Result<> DeviceQueues::check_runs(device::Ordinal device, void* device_stream) const {
    std::optional<device::Context> context = side_.devices.context;
    if (!context) {
        TUTTI_ASSIGN(context, device::Context::retain(*device::driver(), device));
    }
    return context->runs(static_cast<device::StreamHandle>(device_stream));
}

Result<> DeviceQueues::set(void* device_stream) {
    TUTTI_TRY(side_.core.forked());
    TUTTI_TRY(side_.need_driver());
    if (side_.devices.joined())
        TUTTI_TRY(side_.devices.context->owns(static_cast<device::StreamHandle>(device_stream)));
    side_.devices.stream = device_stream;
    side_.devices.stream_was_set = true;
    return {};
}

Result<> DeviceQueues::order(void* before, void* after) {
    TUTTI_TRY(side_.core.forked());
    TUTTI_TRY(side_.need_driver());
    if (before == after) return {};
    std::optional<device::Context> context = side_.devices.context;
    if (!context) {
        // Before the first collective the device is the calling thread's current one.
        device::Ordinal device = 0;
        if (device::driver()->context_device(&device) != device::success)
            return fail(Code::invalid, "no CUDA device is current on this thread")
                .advice("call cudaSetDevice on this thread, or tutti_comm_use_device, first");
        TUTTI_ASSIGN(context, device::Context::retain(*device::driver(), device));
    }
    for (void* stream : {before, after}) TUTTI_TRY(check_runs(context->device(), stream));
    const device::Context::Scope current(*context);
    TUTTI_ASSIGN(const device::DeviceEvent mark, device::DeviceEvent::create(*context));
    TUTTI_TRY(mark.record(static_cast<device::StreamHandle>(before)));
    return mark.hold(static_cast<device::StreamHandle>(after));
}

}  // namespace tutti
