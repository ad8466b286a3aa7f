// Sockets: addresses, listening, connecting with a deadline, whole reads and writes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace tutti::net {

/// "host:port", "[v6]:port".
struct HostPort {
    std::string host;
    uint16_t port = 0;
};
Result<HostPort> parse_host_port(std::string_view text);
std::string format_host_port(const HostPort& address);

/// The caller's preferences for the address to listen on.
struct AddressWish {
    std::string iface;  // an interface ("eth0") or an address of this machine
    bool loopback_only = false;
    std::string usual;  // an address of this machine; empty: of the first interface that will do
};
/// The numeric address of the interface, or the text itself if it is an address; empty: 127.0.0.1
/// if loopback_only, else the usual one, else that of the first interface that is up and not
/// loopback (127.0.0.1 if there is none). IPv4 before IPv6. invalid lists the interfaces.
Result<std::string> choose_address(const AddressWish& wish);

/// This machine's numeric address on the route to another; sends nothing. Empty if there is no
/// route, or it stays on loopback.
std::string address_towards(const HostPort& other, Deadline deadline);

/// Whether a name or numeric address means this machine only. An error: it cannot be looked up.
Result<bool> is_loopback(const std::string& host, Deadline deadline);

/// A listening TCP socket, non-blocking, close-on-exec. port 0: the system chooses. The deadline is
/// for looking up a name.
Result<UniqueFd> listen_tcp(const HostPort& at, Deadline deadline = Deadline::after_ms(30'000));
/// A listening Unix stream socket in the abstract namespace; name without the leading zero byte.
Result<UniqueFd> listen_unix(const std::string& name);
Result<uint16_t> local_port(int fd);

/// Connects, and with keep_trying retries while nothing listens there. The error has the address,
/// the time waited and the last cause. The socket is non-blocking, TCP_NODELAY is set.
struct ConnectOptions {
    Deadline deadline;
    bool keep_trying = false;
};
Result<UniqueFd> connect_tcp(const HostPort& to, const ConnectOptions& options);
Result<UniqueFd> connect_unix(const std::string& name, const ConnectOptions& options);

/// The kernel ends this connection once the peer's host has not answered for a minute: a host that
/// vanishes closes nothing. A stopped process is not the end, since its kernel answers for it.
void end_with_peers_host(int fd);

/// Call it on a connected socket. If both ends are on this machine, it bounds the send buffer so
/// that the bytes in flight fit the caches.
void bound_if_local(int fd);
/// The same for connections that a library opened in this process without showing their
/// descriptors. The function finds them by their ends: one of two listening sockets, this process's
/// or the peer's, each given as a sockaddr.
void bound_hidden_if_local(ByteView own_listener, ByteView peer_listener);

/// Transfers all bytes on a non-blocking socket, and polls until the deadline. peer_lost: the peer
/// closed or reset the connection; timeout: says how many bytes were transferred.
Result<> send_all(int fd, ByteView data, Deadline deadline);
Result<> recv_all(int fd, std::span<std::byte> data, Deadline deadline);

/// A message after a 32-bit length; refuses lengths over max_bytes before it allocates.
Result<> send_frame(int fd, ByteView body, Deadline deadline);
Result<Bytes> recv_frame(int fd, std::size_t max_bytes, Deadline deadline);

/// One frame and file descriptors (at most 253) with it, over a Unix socket.
Result<> send_fds(int socket, std::span<const int> fds, ByteView body, Deadline deadline);
struct FdMessage {
    Bytes body;
    std::vector<UniqueFd> fds;
};
Result<FdMessage> recv_fds(int socket, std::size_t max_bytes, Deadline deadline);

}  // namespace tutti::net
