// Lists the machine's PCI devices, with and without a driver.
#pragma once

#include <string>
#include <vector>

#include "tree.h"

namespace tutti::info {

struct PciDevice {
    std::string slot;  // "0000:3b:00.0"
    uint32_t vendor = 0;
    uint32_t device = 0;
    uint32_t kind = 0;   // class and subclass: 0x0302 is a 3D controller
    std::string driver;  // "": no driver uses the device
    std::string node;    // NUMA node; "" or "-1": unknown
};

std::vector<PciDevice> pci_devices(const Tree& tree);

}  // namespace tutti::info
