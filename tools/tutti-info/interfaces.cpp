#include "net/interfaces.h"

#include <fmt/ranges.h>

#include "sections.h"

namespace tutti::info {
namespace {

const std::string folder = "/sys/class/net";

std::string human_speed(uint64_t mbits) {
    return mbits % 1000 == 0 ? fmt::format("{} Gbit/s", mbits / 1000)
                             : fmt::format("{} Mbit/s", mbits);
}

// For an interface without a speed of its own, the kernel's file contains -1, or cannot be read.
Fact speed(const Tree& tree, const std::string& path) {
    const auto mbits = tree.number(path + "speed");
    if (!mbits) return {"speed_mbits", nullptr, {}};
    return {"speed_mbits", *mbits, human_speed(*mbits)};
}

std::vector<std::string> addresses_of(const std::string& name,
                                      const std::vector<net::Interface>& all) {
    std::vector<std::string> out;
    for (const net::Interface& i : all)
        if (i.name == name) out.push_back(i.address.host());
    return out;
}

Item look_at(const Tree& tree, const std::string& name, const std::vector<net::Interface>& all) {
    const std::string path = folder + "/" + name + "/";
    const std::vector<std::string> addresses = addresses_of(name, all);
    // The kernel reports the state "unknown" for loopback and tunnels that work.
    const std::string state = tree.line(path + "operstate");
    const uint64_t mtu = tree.number(path + "mtu").value_or(0);
    const std::string driver = tree.link_name(path + "device/driver");
    return {.name = name,
            .facts = {{"state", state, state == "unknown" ? "" : state},
                      {"addresses", addresses,
                       addresses.empty() ? "no address"
                                         : fmt::format("{}", fmt::join(addresses, ", "))},
                      speed(tree, path),
                      {"mtu", mtu, fmt::format("mtu {}", mtu)},
                      {"driver", driver, driver}},
            .usable = {},
            .why_not = {},
            .parts = {}};
}

}  // namespace

Section look_at_interfaces(const Tree& tree) {
    Section out;
    out.none = "the kernel shows no interface under /sys/class/net";
    const auto listed = net::list_interfaces();
    if (!listed) out.advice.push_back("no addresses: " + error_text(listed.error()));
    const std::vector<net::Interface> addresses = listed ? *listed : std::vector<net::Interface>();
    for (const std::string& name : tree.names(folder))
        if (tree.exists(folder + "/" + name + "/mtu"))
            out.items.push_back(look_at(tree, name, addresses));
    return out;
}

}  // namespace tutti::info
