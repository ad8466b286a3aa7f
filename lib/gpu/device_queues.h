// The device streams of one communicator's calls.
#pragma once

#include "gpu/device_side.h"

namespace tutti {

/// Only the issuing thread uses it.
class DeviceQueues {
public:
    explicit DeviceQueues(DeviceSide& side) : side_(side) {}

    /// Sets the device stream of calls that name none, nullptr for the legacy default one.
    Result<> set(void* device_stream);
    /// Makes later work on `after` wait for the work now on `before`; the host does not wait.
    Result<> order(void* before, void* after);
    /// invalid for a stream of another device.
    Result<> check_owner(void* device_stream);
    /// invalid while a graph is captured on it. Checked in every call, because a program may begin
    /// a capture at any time; also before the ranks join.
    Result<> check_runs(device::Ordinal device, void* device_stream) const;

private:
    DeviceSide& side_;
};

}  // namespace tutti
