#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pci.h"
#include "sections.h"

namespace tutti::info {
namespace {

const std::string class_folder = "/sys/class/infiniband";
const std::string verbs_folder = "/sys/class/infiniband_verbs";
const std::string slingshot_folder = "/sys/class/cxi";

constexpr uint32_t infiniband_controller = 0x0207;

/// An adapter as the PCI bus lists it, to tell a missing driver from a missing adapter.
struct Adapter {
    uint32_t vendor;
    uint32_t device, mask;  // (device ^ theirs) & mask == 0
    std::string_view name;
    std::string_view driver;  // the module that makes an RDMA device of it
};
constexpr Adapter adapters[] = {
    {0x15b3, 0, 0, "Mellanox/NVIDIA ConnectX", "mlx5_ib"},
    {0x1d0f, 0xefa0, 0xfff8, "Amazon EFA", "efa"},
    {0x17db, 0x0501, 0xffff, "HPE Slingshot", "cxi_user"},
    {0x8086, 0x24f0, 0xfffe, "Intel Omni-Path", "hfi1"},
};

std::string adapter_name(const PciDevice& device, std::string_view& driver) {
    for (const Adapter& a : adapters)
        if (a.vendor == device.vendor && ((a.device ^ device.device) & a.mask) == 0) {
            driver = a.driver;
            return std::string(a.name);
        }
    return device.kind == infiniband_controller ? "an InfiniBand controller" : "";
}

// A program uses an adapter through the adapter's own file in /dev/infiniband. Returns "" if this
// process may open that file, else the reason.
std::string verbs_trouble(const Tree& tree, const std::string& device) {
    for (const std::string& name : tree.names(verbs_folder)) {
        if (tree.line(verbs_folder + "/" + name + "/ibdev") != device) continue;
        const std::string path = "/dev/infiniband/" + name;
        if (::access(tree.real_path(path).c_str(), R_OK | W_OK) == 0) return {};
        return fmt::format("{}: {}", path, std::strerror(errno));
    }
    return "no file under /dev/infiniband belongs to it; load the module ib_uverbs";
}

Item look_at_port(const Tree& tree, const std::string& path, const std::string& number) {
    const std::string state = tree.line(path + "state");  // "4: ACTIVE"
    const std::string layer = tree.line(path + "link_layer");
    const std::string rate = tree.line(path + "rate");
    const bool active = state.ends_with("ACTIVE") && !state.ends_with("INIT_ACTIVE");
    return {
        .name = "port " + number,
        .facts = {{"state", state, state},
                  {"link_layer", layer, layer == "Ethernet" ? "Ethernet (RoCE)" : layer},
                  {"rate", rate, rate}},
        .usable = active,
        .why_not = active ? "" : "the link is not active; check cable, switch and subnet manager",
        .parts = {}};
}

Item look_at_device(const Tree& tree, const std::string& name) {
    const std::string path = class_folder + "/" + name + "/";
    const std::string driver = tree.link_name(path + "device/driver");
    const std::string firmware = tree.line(path + "fw_ver");
    Item out{.name = name,
             .facts = {{"driver", driver, driver.empty() ? "software" : driver},
                       {"firmware", firmware, firmware.empty() ? "" : "firmware " + firmware}},
             .usable = {},
             .why_not = verbs_trouble(tree, name),
             .parts = {}};
    for (const std::string& port : tree.names(path + "ports"))
        out.parts.push_back(look_at_port(tree, path + "ports/" + port + "/", port));
    const bool active = std::any_of(out.parts.begin(), out.parts.end(),
                                    [](const Item& port) { return port.usable == true; });
    if (out.why_not.empty() && !active) out.why_not = "no port is active";
    out.usable = out.why_not.empty();
    return out;
}

// Adapters on the PCI bus for which the kernel shows no RDMA device.
void add_idle_adapters(Section& out, const Tree& tree) {
    for (const PciDevice& device : pci_devices(tree)) {
        std::string_view driver;
        const std::string name = adapter_name(device, driver);
        const std::string path = "/sys/bus/pci/devices/" + device.slot + "/";
        if (name.empty() || !tree.names(path + "infiniband").empty() ||
            !tree.names(path + "cxi").empty())
            continue;
        out.items.push_back(
            {.name = device.slot,
             .facts = {{"adapter", name, name}},
             .usable = false,
             .why_not = fmt::format("the kernel shows no RDMA device for it{}",
                                    driver.empty() ? "" : fmt::format("; use modprobe {}", driver)),
             .parts = {}});
    }
}

}  // namespace

Section look_at_rdma(const Tree& tree) {
    Section out;
    for (const std::string& name : tree.names(class_folder))
        out.items.push_back(look_at_device(tree, name));
    for (const std::string& name : tree.names(slingshot_folder)) {
        const bool may = ::access(tree.real_path("/dev/" + name).c_str(), R_OK | W_OK) == 0;
        out.items.push_back({.name = name,
                             .facts = {{"adapter", "HPE Slingshot", "HPE Slingshot"}},
                             .usable = may,
                             .why_not = may ? "" : "/dev/" + name + ": " + std::strerror(errno),
                             .parts = {}});
    }
    add_idle_adapters(out, tree);
    out.none = fmt::format("no adapter on the PCI bus, and {}; tools/soft-roce emulates one",
                           tree.exists(class_folder)
                               ? "the kernel's list of RDMA devices is empty"
                               : "the kernel's RDMA support (ib_core) is not loaded");
    return out;
}

}  // namespace tutti::info
