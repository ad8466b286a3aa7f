// Device memory that is registered with the device library.
#pragma once

#include "gpu/device_side.h"

namespace tutti {

/// Only the issuing thread uses it.
class DeviceMemory {
public:
    explicit DeviceMemory(DeviceSide& side) : side_(side) {}

    /// Device memory that the library maps on every rank's device. Collective.
    Result<std::byte*> allocate(std::size_t bytes);
    Result<> add(std::byte* data, std::size_t bytes);
    /// False: no memory of this communicator begins there.
    Result<bool> remove(std::byte* data, bool handed_out);

private:
    std::vector<Devices::RegisteredMemory>::iterator find(const std::byte* data);

    DeviceSide& side_;
};

}  // namespace tutti
