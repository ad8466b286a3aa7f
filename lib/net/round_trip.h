// The round-trip time of a connection, as the kernel measures it.
#pragma once

namespace tutti::net {

/// The shortest round trip of a connected TCP socket so far, in microseconds; 0: unknown, or not a
/// TCP socket. The peer's kernel answers, so the peer's process need not run meanwhile.
double round_trip_us(int fd);

}  // namespace tutti::net
