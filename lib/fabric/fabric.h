// A transport made of a library's ports.
#pragma once

#include <memory>

#include "fabric/port.h"
#include "transport/peer_limits.h"
#include "transport/transport.h"

namespace tutti::fabric {

struct Settings {
    std::string_view name = "fabric";
    std::size_t max_message_bytes = 256 * 1024;
    /// The longest wait for a peer when an operation takes its memory back.
    int64_t patience_ms = 5000;
    double latency_us = 2;  // if the library does not estimate it
    double bandwidth_gbs = 2.5;
    PeerLimits limits = {};
};

/// Makes a transport of the factory's ports, as many as the context says. If there is an error
/// instead of a factory, listen() returns it.
std::unique_ptr<Transport> make_fabric_transport(const TransportContext& context,
                                                 Result<std::unique_ptr<PortFactory>> factory,
                                                 const Settings& settings);

}  // namespace tutti::fabric
