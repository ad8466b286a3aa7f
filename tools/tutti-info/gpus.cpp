#include "gpu_libraries.h"
#include "pci.h"
#include "sections.h"

namespace tutti::info {
namespace {

constexpr uint32_t nvidia = 0x10de;

/// Why collectives cannot use NVIDIA's GPUs on this machine; "" if they can.
std::string why_not() {
    for (const GpuLibrary& found : {cuda_driver(), nccl()})
        if (!found.usable) return found.text;
    return {};
}

std::string_view maker_of(uint32_t vendor) {
    switch (vendor) {
        case nvidia:
            return "NVIDIA";
        case 0x1002:
            return "AMD";
        case 0x8086:
            return "Intel";
        default:
            return {};  // display controllers of servers
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
    const std::string reason = device.vendor != nvidia ? "tutti uses NVIDIA's GPUs only"
                               : device.driver.empty() ? "no driver uses it; load the module nvidia"
                                                       : why_not();
    const std::string driver = device.driver.empty() ? "none" : device.driver;
    return {.name = device.slot,
            .facts = {{"maker", maker, model.empty() ? maker : ""},
                      {"model", model, model},
                      {"driver", device.driver, "driver " + driver},
                      {"numa_node", device.node, {}}},
            .usable = reason.empty(),
            .why_not = reason,
            .parts = {}};
}

}  // namespace

Section look_at_gpus(const Tree& tree) {
    Section out;
    const std::string version = tree.line("/proc/driver/nvidia/version");
    if (!version.empty()) out.facts.push_back(fact("nvidia driver", version));
    // Report the libraries even if no GPU is visible: containers often hide the PCI bus.
    out.facts.push_back(fact("cuda library", cuda_driver().text));
    out.facts.push_back(fact("nccl library", nccl().text));
    for (const PciDevice& device : pci_devices(tree))
        if (may_compute(device.kind) && !maker_of(device.vendor).empty())
            out.items.push_back(look_at(tree, device));
    add_gpu_links(out);
    out.none = "no GPU on the PCI bus";
    return out;
}

}  // namespace tutti::info
