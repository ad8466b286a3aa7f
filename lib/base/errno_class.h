// ErrnoClass: which side made a system call on a connection fail.
#pragma once

#include <cstdint>

namespace tutti {

enum class ErrnoClass : uint8_t {
    again,  // nothing has failed: the call is to be repeated, at once or when the socket is ready
    shortage,  // this process or machine is short of memory or descriptors, which may pass
    peer,      // the peer, or the way to it, is gone
    own,       // anything else: says nothing about the peer
};

/// The one table of what an errno says. An errno that it does not know is no peer's fault.
ErrnoClass classify_errno(int sys_errno);

}  // namespace tutti
