#include "torch_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "net/socket.h"

namespace tutti::run {
namespace {

// Binds to all addresses, as torch does, but does not listen: torch's sockets have SO_REUSEADDR and
// can still listen there, and no port is chosen twice.
Result<UniqueFd> bind_any(const sockaddr* any, socklen_t bytes) {
    UniqueFd fd(::socket(any->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    if (!fd || ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd.get(), any, bytes) != 0)
        return fail_errno(errno, "cannot reserve a port for MASTER_PORT");
    return fd;
}

Result<UniqueFd> bind_any() {
    sockaddr_in6 v6{};  // the socket takes IPv4, too
    v6.sin6_family = AF_INET6;
    if (auto fd = bind_any(reinterpret_cast<const sockaddr*>(&v6), sizeof v6)) return fd;
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    return bind_any(reinterpret_cast<const sockaddr*>(&v4), sizeof v4);
}

}  // namespace

Result<TorchPort> reserve_torch_port() {
    TorchPort port;
    TUTTI_ASSIGN(port.reservation, bind_any());
    TUTTI_ASSIGN(port.number, net::local_port(port.reservation.get()));
    return port;
}

}  // namespace tutti::run
