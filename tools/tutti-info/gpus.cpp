#include <link.h>

#include <algorithm>
#include <cstdlib>

#include "cuda/driver.h"
#include "cuda/links.h"
#include "pci.h"
#include "sections.h"
#include "transports/catalog.h"

namespace tutti::info {
namespace {

constexpr uint32_t nvidia = 0x10de;

std::string setting(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value ? value : otherwise;
}

/// A library that collectives on NVIDIA's GPUs need: which one it is, or why there is none.
struct Found {
    std::string text;
    bool usable = false;
};

/// The file of a library that is in this process by now; "" if none has that in its name.
std::string file_of(std::string part) {
    std::pair<const std::string, std::string> search{std::move(part), {}};
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            auto& [wanted, file] = *static_cast<decltype(search)*>(data);
            if (std::string_view(info->dlpi_name).find(wanted) == std::string_view::npos) return 0;
            file = info->dlpi_name;
            return 1;
        },
        &search);
    return search.second;
}

Found find_driver() {
    const auto driver = device::find_driver(setting("TUTTI_CUDA_LIBRARY", "auto"));
    if (!driver) return {driver.error().message, false};
    const int version = (*driver)->version;
    const std::string file = file_of((*driver)->path);
    return {fmt::format("CUDA {}.{} ({})", version / 1000, version % 1000 / 10,
                        file.empty() ? (*driver)->path : file),
            true};
}

Found find_nccl() {
    const auto library = device_libraries()[0].load(setting("TUTTI_NCCL_LIBRARY", ""));
    if (!library) return {library.error().message, false};
    std::string text = (*library)->describe();
    const std::string file = file_of("libnccl");
    if (text.find('/') == std::string::npos && !file.empty()) text += ": " + file;
    return {std::move(text), true};
}

/// Why collectives cannot use NVIDIA's GPUs on this machine; "" if they can.
std::string why_not() {
    for (const Found& found : {find_driver(), find_nccl()})
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
    const std::string reason = device.vendor != nvidia ? "only NVIDIA's GPUs are used"
                               : device.driver.empty() ? "no driver has taken it"
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

/// A row for each GPU that the driver shows: what lies between it and each of the others.
void add_links(Section& out) {
    const auto driver = device::find_driver(setting("TUTTI_CUDA_LIBRARY", "auto"));
    if (!driver) return;
    const auto devices = device::linked_devices(**driver);
    if (!devices) {
        out.advice.push_back(devices.error().message);
        return;
    }
    for (std::size_t from = 0; from < devices->size(); ++from) {
        const device::LinkedDevice& gpu = (*devices)[from];
        Json links = Json::array();
        std::string text;
        for (std::size_t to = 0; to < gpu.links.size(); ++to) {
            const auto name = from == to ? std::string_view("-") : link_name(gpu.links[to]);
            links.push_back(name);
            text += fmt::format("{:<7}", name);
        }
        out.facts.push_back({fmt::format("gpu {} links", from),
                             {{"bus", gpu.bus}, {"name", gpu.name}, {"links", std::move(links)}},
                             fmt::format("{} {} {}", text, gpu.bus, gpu.name)});
    }
}

}  // namespace

Section look_at_gpus(const Tree& tree) {
    Section out;
    const std::string version = tree.line("/proc/driver/nvidia/version");
    if (!version.empty()) out.facts.push_back(fact("nvidia driver", version));
    // Also where no GPU is seen: containers often hide the bus.
    out.facts.push_back(fact("cuda library", find_driver().text));
    out.facts.push_back(fact("nccl library", find_nccl().text));
    for (const PciDevice& device : pci_devices(tree))
        if (may_compute(device.kind) && !maker_of(device.vendor).empty())
            out.items.push_back(look_at(tree, device));
    add_links(out);
    out.none = "no GPU on the PCI bus";
    return out;
}

}  // namespace tutti::info
