#include "cuda/links.h"

#include <array>

namespace tutti::device {
namespace {

constexpr int native_atomics = 3;  // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED

// The driver has no query for NVLink, but only NVLink carries atomics between GPUs.
Result<Link> link(const Driver& driver, Ordinal from, Ordinal to) {
    if (from == to) return Link::self;
    int reaches = 0, atomics = 0;
    TUTTI_TRY(check(driver, driver.can_access_peer(&reaches, from, to),
                    "asking whether a GPU can access another GPU's memory"));
    if (!reaches) return Link::host;
    TUTTI_TRY(check(driver, driver.peer_attribute(&atomics, native_atomics, from, to),
                    "asking for the link between two GPUs"));
    return atomics ? Link::nvlink : Link::pcie;
}

}  // namespace

std::string_view link_name(Link link) {
    switch (link) {
        case Link::self:
            return "itself";
        case Link::nvlink:
            return "NVLink";
        case Link::pcie:
            return "PCIe";
        case Link::host:
            return "host";
    }
    return {};
}

Result<std::vector<LinkedDevice>> linked_devices(const Driver& driver) {
    int count = 0;
    TUTTI_TRY(check(driver, driver.device_count(&count), "counting the GPUs"));
    std::vector<LinkedDevice> devices;
    for (Ordinal from = 0; from < count; ++from) {
        std::array<char, 100> name{};
        std::array<char, 32> bus{};
        TUTTI_TRY(check(driver, driver.device_name(name.data(), name.size(), from),
                        "asking for a GPU's name"));
        TUTTI_TRY(check(driver, driver.pci_bus_id(bus.data(), bus.size(), from),
                        "asking for a GPU's PCI bus id"));
        LinkedDevice device{name.data(), bus.data(), {}};
        for (Ordinal to = 0; to < count; ++to) {
            TUTTI_ASSIGN(const Link between, link(driver, from, to));
            device.links.push_back(between);
        }
        devices.push_back(std::move(device));
    }
    return devices;
}

}  // namespace tutti::device
