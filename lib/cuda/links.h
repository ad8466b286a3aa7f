// The links between this machine's GPUs, as the driver reports them.
#pragma once

#include <string_view>
#include <vector>

#include "cuda/driver.h"

namespace tutti::device {

enum class Link : uint8_t {
    self,
    nvlink,  // each accesses the other's memory, with atomics
    pcie,    // each accesses the other's memory
    host,    // copies go through the host's memory
};
std::string_view link_name(Link link);

struct LinkedDevice {
    std::string name, bus;    // "NVIDIA H200", "0000:17:00.0"
    std::vector<Link> links;  // to each device
};

/// Every device that the driver shows.
Result<std::vector<LinkedDevice>> linked_devices(const Driver& driver);

}  // namespace tutti::device
