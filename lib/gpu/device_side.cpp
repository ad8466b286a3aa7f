#include "gpu/device_side.h"

#include "wait/pace.h"

namespace tutti {
namespace {

constexpr useconds_t idle_poll_us = 50;

}  // namespace

Result<> DeviceSide::need_driver() const {
    const auto found = device::find_driver(core.config().cuda_library);
    if (!found) return tl::unexpected(found.error());
    return {};
}

Result<device::MemoryKind> DeviceSide::memory_of(const void* buffer) const {
    return device::memory_of(buffer);
}

Result<> DeviceSide::wait_for_idle() {
    Pace pace(Deadline::after_ms(core.config().timeout_ms), {.sleep_us = idle_poll_us});
    while ((devices.group && !devices.group->idle()) ||
           (core.manual() && core.streams.busy_outside())) {
        if (auto over = core.failure_protocol.fatal_error()) return tl::unexpected(over->error);
        progress.advance();
        if (!pace.pause())
            return fail(Code::timeout, "earlier operations on the GPU did not end within {} ms",
                        core.config().timeout_ms);
    }
    return {};
}

}  // namespace tutti
