// The state that the GPU parts of one communicator share.
#pragma once

#include "comm/issuer.h"
#include "comm/offload.h"
#include "gpu/devices.h"
#include "gpu/plan/device_planner.h"

namespace tutti {

/// Only the issuing thread uses it, except where noted.
struct DeviceSide {
    explicit DeviceSide(const OffloadHost& host)
        : core(host.core),
          issuer(host.issuer),
          progress(host.progress),
          planner(core.planner, core.config(), core.channels) {}

    Rank rank() const { return core.rank(); }
    /// Loads the driver; unsupported if there is none.
    Result<> need_driver() const;
    /// Fails, naming the rank, if the driver has failed and cannot tell. Any thread.
    Result<device::MemoryKind> memory_of(const void* buffer) const;
    /// Waits until no collective runs, because the allocation of pinned memory may wait for the
    /// device. The progress thread, if there is one, moves staged operations in the meantime.
    Result<> wait_for_idle();
    /// Whether the ranks' group belongs to this epoch.
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
