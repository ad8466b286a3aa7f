// The time that a connection's peer takes to answer, as the kernel has seen it.
#pragma once

namespace tutti::net {

/// The shortest round trip of a connected TCP socket so far, in microseconds; 0: not known, or not
/// a TCP socket. The kernel's own answers make it, so the peer's process need not run meanwhile.
double round_trip_us(int fd);

}  // namespace tutti::net
