// Joins a communicator's ranks in a device library's group: they exchange their devices, rank 0
// broadcasts an identifier, all join, and every rank learns whether all could. Ranks issue calls in
// the same order, so each joins at its first call on device memory.
#pragma once

#include "gpu/device_side.h"

namespace tutti {

/// Only the issuing thread uses it.
class DeviceJoin {
public:
    explicit DeviceJoin(DeviceSide& side) : side_(side) {}

    /// Joins the other ranks on that device, unless they have joined since the last mismatch.
    Result<> join(device::Ordinal device);
    /// Joins as a separate call (tutti_comm_use_device).
    Result<> use(device::Ordinal device);
    /// invalid while this thread gathers launches: the other ranks may be waiting for it.
    Result<> may_join() const;
    /// Leaves in order if the other ranks leave too; a deadline bounds it.
    void leave();

    /// Whether communicators split off this one share its group's resources.
    bool splits() const;
    /// nullptr for a rank that joins no part.
    std::unique_ptr<OffloadShare> split(const OffloadSplit& part);
    /// If some rank of the part got no group, the part has none and joins like a new communicator.
    Result<> adopt(std::unique_ptr<OffloadShare> share);

private:
    Result<> join_library(device::Ordinal device);
    Result<std::shared_ptr<DeviceGroup>> make_group(device::Ordinal device, bool of_host);
    Result<DeviceMode> agree(device::Ordinal device);
    Result<std::vector<std::byte>> share_id(bool of_host);
    Result<> register_memory();

    DeviceSide& side_;
};

}  // namespace tutti
