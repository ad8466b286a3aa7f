// Limits on the memory that one peer can make this rank keep. This rank reports a peer that exceeds
// one as lost, with the reason: it is malicious, or so far ahead that memory would run out.
#pragma once

#include <cstddef>

namespace tutti {

struct PeerLimits {
    /// Bytes of large messages that have arrived over one connection (or a library's port) and that
    /// no lane has read. Channels and credits alone would allow 16 GiB, or more with long messages.
    std::size_t unread_bytes = std::size_t{4} << 30;
    /// Bytes of control messages that the peer has not received.
    std::size_t unsent_control_bytes = std::size_t{32} << 20;
    /// Connections for control messages.
    std::size_t control_connections = 8;
    /// Channels that the peer has opened for communicators that this rank has not made.
    std::size_t early_channels = 4096;
};

}  // namespace tutti
