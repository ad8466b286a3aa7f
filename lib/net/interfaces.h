// This machine's network interfaces, as peers could reach them.
#pragma once

#include <string>
#include <vector>

#include "net/resolve.h"

namespace tutti::net {

/// An address of an interface; an interface with several addresses has several entries.
struct Interface {
    std::string name;
    SocketAddress address;
    bool up = false;
    bool loopback = false;

    bool is_v4() const { return address.storage.ss_family == AF_INET; }
    /// A link-local address is valid only on its interface: peers use it if theirs has the same
    /// name.
    bool is_link_local() const;
};

/// link_local: only link-local addresses, else only others. IPv4 before IPv6, else in the system's
/// order.
Result<std::vector<Interface>> list_interfaces(bool link_local = false);

}  // namespace tutti::net
