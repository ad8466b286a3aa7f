// Device memory that the devices' library knows in advance.
#pragma once

#include "gpu/device_side.h"

namespace tutti {

/// The issuing thread's.
class DeviceMemory {
public:
    explicit DeviceMemory(DeviceSide& side) : side_(side) {}

    /// Device memory that the ranks' library maps into each other's. Collective.
    Result<std::byte*> allocate(std::size_t bytes);
    Result<> add(std::byte* data, std::size_t bytes);
    /// False: the communicator knows no memory that begins there.
    Result<bool> remove(std::byte* data, bool handed_out);

private:
    std::vector<Devices::RegisteredMemory>::iterator find(const std::byte* data);

    DeviceSide& side_;
};

}  // namespace tutti
