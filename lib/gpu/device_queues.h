// The device streams of one communicator's calls.
#pragma once

#include "gpu/device_side.h"

namespace tutti {

/// The issuing thread's.
class DeviceQueues {
public:
    explicit DeviceQueues(DeviceSide& side) : side_(side) {}

    /// The device stream of calls that name none, nullptr for the legacy default one.
    Result<> set(void* device_stream);
    /// Work that comes on `after` waits for what is on `before` by now; the host waits for nothing.
    Result<> order(void* before, void* after);
    /// invalid for a stream of another device.
    Result<> check_owner(void* device_stream);
    /// invalid while a graph is captured on it. Asked with every call, since a program may begin a
    /// capture at any time; also before the ranks join.
    Result<> check_runs(device::Ordinal device, void* device_stream) const;

private:
    DeviceSide& side_;
};

}  // namespace tutti
