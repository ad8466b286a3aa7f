// Limits on the memory that one peer can make this rank keep. This rank reports a peer that exceeds
// one as lost, with the reason: it is malicious, or so far ahead that memory would run out.
#pragma once

#include <cstddef>

namespace tutti {

/// Each limit is for one peer at any time, not a sum over the job's life.
struct PeerLimits {
    /// Bytes of large messages that have arrived over one connection (or a library's port) and that
    /// no operation has consumed, because this rank has not called it yet. The credits of all
    /// channels together would allow 16 GiB, or more with long messages.
    std::size_t unread_bytes = std::size_t{4} << 30;
    /// Bytes of control messages that wait here because the peer does not read them.
    std::size_t unsent_control_bytes = std::size_t{32} << 20;
    /// Open connections for control messages.
    std::size_t control_connections = 8;
    /// Channels that the peer has opened for communicators that this rank has not created yet.
    std::size_t early_channels = 4096;
};

}  // namespace tutti
