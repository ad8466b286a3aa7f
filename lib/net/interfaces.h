// This machine's network interfaces, as peers could reach them.
#pragma once

#include <string>
#include <vector>

#include "net/resolve.h"

namespace tutti::net {

/// An address of an interface; one with several addresses comes several times.
struct Interface {
    std::string name;
    SocketAddress address;
    bool up = false;
    bool loopback = false;

    bool is_v4() const { return address.storage.ss_family == AF_INET; }
    /// Means something only together with an interface: peers use it if theirs has the same name.
    bool is_link_local() const;
};

/// Without link-local addresses, or only these. IPv4 before IPv6, else in the system's order.
Result<std::vector<Interface>> list_interfaces(bool link_local = false);

}  // namespace tutti::net
