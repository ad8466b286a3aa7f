// Requests with a part that the issuing thread puts on a device's stream.
#pragma once

#include <memory>

#include "cuda/operation.h"
#include "gpu/device_stream_guard.h"
#include "run/request.h"

namespace tutti {

/// The part on the stream.
struct DevicePart {
    DeviceOperation* operation = nullptr;  // the plan's or the messages'; nullptr: nothing
    void* stream = nullptr;
    DeviceStreamGuard use;    // a collective's, until it is done
    uint64_t generation = 0;  // of its device group
};

/// A collective.
struct DeviceRequest final : Request {
    DeviceRequest() {
        external = true;
        released = false;
    }
    bool may_end() override { return !device.operation || device.operation->may_cancel(); }
    bool is_outdated(uint64_t current) const override { return device.generation != current; }
    void ended() override { device.use.end(); }

    DevicePart device;
};

/// A collective or a group of messages, while it is launched.
struct DeviceLaunch {
    Request& request;
    DevicePart& device;
};

/// Plans of all paths except the host's have such an operation.
inline DeviceOperation& operation_of(Plan& plan) {
    return static_cast<DeviceOperation&>(*plan.operation);
}

}  // namespace tutti
