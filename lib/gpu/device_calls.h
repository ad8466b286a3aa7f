// Collectives on device memory: recognised by their buffers, launched by the caller in the order of
// the calls, and polled from then on.
#pragma once

#include "gpu/device_join.h"
#include "gpu/device_launcher.h"
#include "gpu/device_queues.h"
#include "gpu/device_side.h"

namespace tutti {

/// The issuing thread's.
class DeviceCalls {
public:
    DeviceCalls(DeviceSide& side, const LaunchPath& path) : side_(side), path_(path) {}

    /// Whether the buffers, or where there are none the caller, say that the call is a device's.
    /// Fills in where the buffers are.
    Result<bool> takes(OffloadCall& asked) const;
    /// A call that takes() has looked at.
    Result<std::unique_ptr<Request>> start(const OffloadCall& asked);

private:
    /// One call, with what was found out about it.
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
