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
    int64_t patience_ms = 5000;  // with peers that do not take what is to be taken back
    double latency_us = 2;       // where the library does not say
    double bandwidth_gbs = 2.5;
    PeerLimits limits = {};
};

/// The factory's ports, as many as the context says, once it could be made: an error is told by
/// listen().
std::unique_ptr<Transport> make_fabric_transport(const TransportContext& context,
                                                 Result<std::unique_ptr<PortFactory>> factory,
                                                 const Settings& settings);

}  // namespace tutti::fabric
