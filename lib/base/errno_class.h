// ErrnoClass: whether this process or the peer made a system call on a connection fail.
#pragma once

#include <cstdint>

namespace tutti {

enum class ErrnoClass : uint8_t {
    again,     // nothing has failed: repeat the call, at once or when the socket is ready
    shortage,  // this process or machine is short of memory or descriptors, which may pass
    peer,      // the peer, or the network to it, is gone
    own,       // any other error: it says nothing about the peer
};

/// The one table of errnos. An unknown errno does not blame the peer.
ErrnoClass classify_errno(int sys_errno);

}  // namespace tutti
