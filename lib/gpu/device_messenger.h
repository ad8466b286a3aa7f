// Sends and receives of device memory.
#pragma once

#include <deque>
#include <vector>

#include "gpu/device_join.h"
#include "gpu/device_launcher.h"
#include "gpu/device_messages.h"
#include "gpu/device_queues.h"

namespace tutti {

/// Only the issuing thread uses it.
class DeviceMessenger {
public:
    DeviceMessenger(DeviceSide& side, const LaunchPath& path) : side_(side), path_(path) {}

    /// Starts messages that are launched together.
    Result<std::unique_ptr<Request>> start(const std::vector<OffloadMessage>& asked,
                                           int64_t timeout_ms, void* device_stream);

private:
    Result<bool> stages() const;
    Result<> check(const std::vector<OffloadMessage>& messages, bool staged) const;
    Result<> find_device_of(const std::vector<OffloadMessage>& messages);
    Result<> connect(DeviceMessages& messages, int64_t timeout_ms);
    Result<> prepare(DeviceMessages& messages);
    Result<> choose_ways(DeviceMessages& messages) const;
    Result<std::unique_ptr<DeviceOperation>> stage(std::deque<DeviceMessages::Part>& parts);

    DeviceSide& side_;
    const LaunchPath path_;
};

}  // namespace tutti
