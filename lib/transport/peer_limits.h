// Limits on the memory that one peer can make this rank keep. A peer that exceeds one is lost, with
// the reason: it is malicious, or so far ahead that memory would run out.
#pragma once

#include <cstddef>

namespace tutti {

struct PeerLimits {
    /// Bytes of large messages that have come over one connection (or a library's port) and that no
    /// lane has read. Channels and credits alone would let 16 GiB come, or more in long messages.
    std::size_t unread_bytes = std::size_t{4} << 30;
    /// Bytes of control messages that the peer has not taken.
    std::size_t unsent_control_bytes = std::size_t{32} << 20;
    /// Connections for control messages.
    std::size_t control_connections = 8;
    /// Channels that it has opened for communicators that this rank has not made.
    std::size_t early_channels = 4096;
};

}  // namespace tutti
