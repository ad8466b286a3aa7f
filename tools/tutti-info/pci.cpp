#include "pci.h"

namespace tutti::info {

std::vector<PciDevice> pci_devices(const Tree& tree) {
    const std::string folder = "/sys/bus/pci/devices";
    std::vector<PciDevice> out;
    for (const std::string& slot : tree.names(folder)) {
        const std::string path = folder + "/" + slot + "/";
        const auto number = [&](const char* file) {
            return static_cast<uint32_t>(tree.number(path + file).value_or(0));
        };
        out.push_back({.slot = slot,
                       .vendor = number("vendor"),
                       .device = number("device"),
                       .kind = number("class") >> 8,
                       .driver = tree.link_name(path + "driver"),
                       .node = tree.line(path + "numa_node")});
    }
    return out;
}

}  // namespace tutti::info
