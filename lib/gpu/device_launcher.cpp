#include "gpu/device_launcher.h"

#include "gpu/device_group_batch.h"
#include "wait/pace.h"

namespace tutti {
namespace {

constexpr useconds_t strict_poll_us = 20;

}  // namespace

Result<> DeviceLauncher::launch(const DeviceLaunch& launch) {
    if (DeviceGroupBatch::here().gathering()) {
        DeviceGroupBatch::here().add({side_.core.self.lock(), this}, launch);
        return {};
    }
    auto launched = may_launch(launch.request);
    if (launched) launched = put_on_stream(launch);
    return finish(launch.request, launched);
}

bool DeviceLauncher::is_cancelled(const Request& request) {
    side_.core.endpoint->pump();
    side_.progress.check_deadlines();
    if (!side_.core.failure_protocol.alarm()) return false;
    // A message belongs to no collective's epoch: only the communicator's failure ends it.
    return request.plan ? side_.core.failure_protocol.verdict(request.tag.sequence).has_value()
                        : side_.core.failure_protocol.fatal_error().has_value();
}

Result<> DeviceLauncher::may_launch(Request& request) {
    Pace pace(Deadline(), {.sleep_us = strict_poll_us});
    while (side_.core.strict && request.plan &&
           !side_.core.failure_protocol.strict().agreed(request.tag.sequence)) {
        if (is_cancelled(request))
            return fail(Code::aborted,
                        "the operation was not launched, because the communicator failed");
        pace.pause();
    }
    return {};
}

Result<> DeviceLauncher::put_on_stream(const DeviceLaunch& launch) {
    if (!launch.device.operation) return {};
    return launch.device.operation->launch(launch.request.in, launch.request.out,
                                           launch.device.stream,
                                           [&] { return is_cancelled(launch.request); });
}

uint32_t DeviceLauncher::parts(const DevicePart& device) {
    return device.operation ? device.operation->launch_parts() : 0;
}

Result<> DeviceLauncher::put_on_stream(const DeviceLaunch& launch, uint32_t part) {
    return launch.device.operation->launch_part(part, launch.request.in, launch.request.out,
                                                launch.device.stream,
                                                [&] { return is_cancelled(launch.request); });
}

Result<> DeviceLauncher::mark(const DevicePart& device, uint32_t part) {
    return device.operation->mark_part(part, device.stream);
}

Result<> DeviceLauncher::finish_part(const DeviceLaunch& launch, uint32_t part) {
    return launch.device.operation->finish_part(part, launch.device.stream,
                                                [&] { return is_cancelled(launch.request); });
}

void DeviceLauncher::report_failure(const Request& request, const Error& error) {
    if (is_cancelled(request)) return;
    Error raised = wrap(error, request.plan ? describe_call(request.tag)
                                            : std::string("messages on device memory"))
                       .value();
    raised.rank = side_.rank();
    side_.core.failure_protocol.raise(on_rank(side_.rank(), std::move(raised)));
}

Result<> DeviceLauncher::finish(Request& request, const Result<>& launched) {
    if (!launched) report_failure(request, launched.error());
    request.released.store(true, std::memory_order_release);
    bool moved = false;
    if (request.plan) {
        Stream& stream = side_.core.streams[request.plan->stream];
        {
            OwnerGuard owned(stream.owner);
            owned.keep();
        }
        side_.core.streams.drive(stream, moved);
        side_.core.streams.release(stream);
    } else {
        side_.core.transfers.drive(moved);
    }
    if (launched) {
        if (!request.done() && !side_.core.manual()) side_.core.endpoint->wakeups().wake_service();
        return {};
    }
    // The thread that holds the stream ends the request, which has a deadline.
    side_.progress.wait(request, -1);
    return tl::unexpected(request.error);
}

}  // namespace tutti
