// A port over libfabric: one endpoint of reliable datagrams, one completion queue, and the protocol
// of lib/fabric/messages. Over sockets there is a second endpoint, and all messages are eager.
#pragma once

#include <memory>
#include <optional>

#include "fabric/port.h"
#include "transports/ofi/providers.h"

namespace tutti::ofi {

struct PortOptions {
    ProviderWish wish;
    Rank rank = 0;
    Rank size = 1;
    // The engine's: so large that the cost per message does not matter, so small that a payload is
    // still in the cache when it is reduced.
    std::size_t max_message_bytes = 256 * 1024;
    std::optional<std::size_t> eager_bytes;  // empty: chosen for the provider
    bool register_all = false;               // even if the provider does not require it (tests)
};

/// A port over the provider that info describes. The port calls the events, which must outlive it.
Result<std::unique_ptr<fabric::Port>> open_port(const fi_info& info, const PortOptions& options,
                                                fabric::PortEvents& events);

}  // namespace tutti::ofi
