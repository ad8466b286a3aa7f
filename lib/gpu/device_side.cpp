#include "gpu/device_side.h"

#include "wait/pace.h"

namespace tutti {
namespace {

constexpr useconds_t idle_poll_us = 50;

}  // namespace

Result<> DeviceSide::need_driver() const {
    const auto found = device::find_driver(core.config().cuda_library);
    if (!found) return wrap(found.error(), fmt::format("rank {}", rank()));
    return {};
}

Result<device::MemoryKind> DeviceSide::memory_of(const void* buffer) const {
    auto kind = device::memory_of(buffer);
    if (!kind) return wrap(kind.error(), fmt::format("rank {}", rank()));
    return kind;
}

Result<> DeviceSide::wait_for_idle() {
    Pace pace(Deadline::after_ms(core.config().timeout_ms), {.sleep_us = idle_poll_us});
    while ((devices.group && !devices.group->idle()) ||
           (core.manual() && core.streams.busy_outside())) {
        if (auto over = core.failure_protocol.fatal_error()) return tl::unexpected(over->error);
        progress.advance();
        if (!pace.pause()) return fail(Code::timeout, "rank {}: the device is still busy", rank());
    }
    return {};
}

}  // namespace tutti
