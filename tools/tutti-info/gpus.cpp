#include <fmt/format.h>

#include "pci.h"
#include "sections.h"

namespace tutti::info {
namespace {

constexpr std::string_view not_yet = "GPUs are not part of this build yet";

std::string_view maker_of(uint32_t vendor) {
    switch (vendor) {
        case 0x10de:
            return "NVIDIA";
        case 0x1002:
            return "AMD";
        case 0x8086:
            return "Intel";
        default:
            return {};  // what servers show consoles with
    }
}

// VGA, 3D and other display controllers, and processing accelerators.
bool may_compute(uint32_t kind) {
    return kind >> 8 == 0x03 || kind == 0x1200;
}

Item look_at(const Tree& tree, const PciDevice& device) {
    const std::string maker(maker_of(device.vendor));
    const std::string model =
        tree.value("/proc/driver/nvidia/gpus/" + device.slot + "/information", "Model");
    const std::string driver = device.driver.empty() ? "none" : device.driver;
    return {.name = device.slot,
            .facts = {{"maker", maker, model.empty() ? maker : ""},
                      {"model", model, model},
                      {"driver", device.driver, "driver " + driver},
                      {"numa_node", device.node, {}}},
            .usable = false,
            .why_not = std::string(not_yet) +
                       (device.driver.empty() ? "; and no driver has taken it" : ""),
            .parts = {}};
}

}  // namespace

Section look_at_gpus(const Tree& tree) {
    Section out;
    const std::string version = tree.line("/proc/driver/nvidia/version");
    if (!version.empty()) out.facts.push_back(fact("nvidia driver", version));
    for (const PciDevice& device : pci_devices(tree))
        if (may_compute(device.kind) && !maker_of(device.vendor).empty())
            out.items.push_back(look_at(tree, device));
    out.none = fmt::format("no GPU on the PCI bus ({})", not_yet);
    return out;
}

}  // namespace tutti::info
