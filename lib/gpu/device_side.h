// The state that the GPU parts of one communicator share.
#pragma once

#include "comm/issuer.h"
#include "comm/offload.h"
#include "gpu/devices.h"
#include "gpu/plan/device_planner.h"

namespace tutti {

/// The issuing thread's.
struct DeviceSide {
    explicit DeviceSide(const OffloadHost& host)
        : core(host.core),
          issuer(host.issuer),
          progress(host.progress),
          planner(core.planner, core.config(), core.channels) {}

    Rank rank() const { return core.rank(); }
    /// Loads the driver; unsupported where there is none.
    Result<> need_driver() const;
    /// An error names the rank: the driver has failed and cannot tell. Any thread.
    Result<device::MemoryKind> memory_of(const void* buffer) const;
    /// Pinned memory is made while no collective runs: it may have to wait for the device. Another
    /// thread moves what is staged meanwhile, if there is one.
    Result<> wait_for_idle();
    /// Whether the ranks' group is that of this epoch.
    bool has_agreed_path() const {
        return devices.path_agreed && devices.generation == core.generation.load();
    }

    Core& core;
    Issuer& issuer;
    ProgressEngine& progress;
    Devices devices;
    DevicePlanner planner;
};

}  // namespace tutti
