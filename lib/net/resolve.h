// Names to socket addresses, with a deadline; the private part of socket.h.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "net/socket.h"

namespace tutti::net {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t bytes = 0;

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    bool is_loopback() const;
    std::string host() const;              // numeric
    std::optional<uint16_t> port() const;  // of TCP; nullopt: not an IP address
    bool operator==(const SocketAddress& other) const;
};

/// At least one address, in the system's order of preference. Never a reverse look-up.
Result<std::vector<SocketAddress>> resolve(const HostPort& what, Deadline deadline);

}  // namespace tutti::net
