// Collectives on device memory: recognised by their buffers, launched by the calling thread in the
// order of the calls, and then polled.
#pragma once

#include "gpu/device_join.h"
#include "gpu/device_launcher.h"
#include "gpu/device_queues.h"
#include "gpu/device_side.h"

namespace tutti {

/// Only the issuing thread uses it.
class DeviceCalls {
public:
    DeviceCalls(DeviceSide& side, const LaunchPath& path) : side_(side), path_(path) {}

    /// Whether the call is a device's, by its buffers or, without buffers, by its stream. Fills in
    /// the buffers' kinds.
    Result<bool> takes(OffloadCall& asked) const;
    /// Starts a call that takes() has accepted.
    Result<std::unique_ptr<Request>> start(const OffloadCall& asked);

private:
    /// One call with its buffers' kinds, device and stream.
    struct ResolvedCall {
        const OffloadCall& asked;
        Kinds kinds;
        device::Ordinal device;
        void* stream;
        bool in_place;
    };
    Result<Kinds> ask(const void* in, const void* out) const;
    Result<Kinds> kinds_of_list(const OffloadCall& asked) const;
    Result<Kinds> kinds_of_used(const Call& call, const Kinds& both) const;
    Result<Kinds> find_kinds(const OffloadCall& asked) const;
    Result<ResolvedCall> resolve(const OffloadCall& asked) const;
    Result<std::unique_ptr<Request>> attempt(const ResolvedCall& resolved);
    Result<Call> routed(const ResolvedCall& resolved) const;
    Result<Plan*> plan_for(const Call& call, Plan* own, uint32_t stream);
    Result<std::unique_ptr<DeviceRequest>> make_request(const ResolvedCall& resolved, Plan& plan);

    DeviceSide& side_;
    const LaunchPath path_;
};

}  // namespace tutti
