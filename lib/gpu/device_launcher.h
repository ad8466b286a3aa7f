// Puts the device's part of a request, which has its place in the order, on its stream.
#pragma once

#include "gpu/device_request.h"
#include "gpu/device_side.h"

namespace tutti {

class DeviceJoin;
class DeviceQueues;

/// Only the issuing thread uses it. The steps are separate for gathered launches
/// (device_group_batch.h): no step waits for a later one.
class DeviceLauncher {
public:
    explicit DeviceLauncher(DeviceSide& side) : side_(side) {}

    /// Runs all steps, or adds the request to this thread's batch. The caller must not hold the
    /// stream: the launch may wait for NCCL, and a thread that applies a mismatch in the meantime
    /// needs the stream. The request does not change until it is launched.
    Result<> launch(const DeviceLaunch& launch);

    const DeviceLibrary* library() const { return side_.devices.library.get(); }
    Result<> may_launch(Request& request);
    static uint32_t parts(const DevicePart& device);
    Result<> put_on_stream(const DeviceLaunch& launch, uint32_t part);
    static Result<> mark(const DevicePart& device, uint32_t part);
    Result<> finish_part(const DeviceLaunch& launch, uint32_t part);
    void report_failure(const Request& request, const Error& error);
    Result<> finish(Request& request, const Result<>& launched);

private:
    bool is_cancelled(const Request& request);
    Result<> put_on_stream(const DeviceLaunch& launch);

    DeviceSide& side_;
};

/// The objects that a call or messages on device memory use.
struct LaunchPath {
    DeviceQueues& queues;
    DeviceJoin& join;
    DeviceLauncher& launcher;
};

}  // namespace tutti
