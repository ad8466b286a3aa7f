// The interfaces that TUTTI_IFACE can name.
#include "net/interfaces.h"
#include "transports/catalog.h"

namespace tutti {

std::vector<Device> tcp_devices() {
    const auto interfaces = net::list_interfaces();
    if (!interfaces)
        return {{.provider = "",
                 .name = "interfaces",
                 .detail = "",
                 .usable = false,
                 .why_not = error_text(interfaces.error())}};
    std::vector<Device> devices;
    for (const net::Interface& i : *interfaces)
        devices.push_back({.provider = "",
                           .name = i.name,
                           .detail = i.address.host() + (i.loopback ? ", this host only" : ""),
                           .usable = i.up,
                           .why_not = i.up ? "" : "it is down: ip link set " + i.name + " up"});
    return devices;
}

}  // namespace tutti
