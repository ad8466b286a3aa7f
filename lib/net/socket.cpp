#include "net/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/log.h"
#include "net/resolve.h"
#include "net/serving.h"

namespace tutti::net {
namespace {

constexpr int backlog = 4096;  // the system lowers it to its own limit
// The kernel doubles it. With 192 KiB or more, traffic in both directions at once takes twice as
// long. Under 64 KiB there is no room for two packets of loopback, and each waits for the peer's
// delayed ACK.
constexpr int local_buffer_bytes = 128 * 1024;
constexpr int64_t first_pause_ms = 2;
constexpr int64_t longest_pause_ms = 250;
// If there are further addresses to try, an address that drops packets must not use up the whole
// deadline.
constexpr int64_t one_of_several_ms = 2000;
// A peer's host that has not answered for `vanished_ms` is gone. The kernel asks it after a silence
// of `silence_s`, then every `asking_s`.
constexpr int silence_s = 30;
constexpr int asking_s = 5;
constexpr int vanished_ms = 60'000;

Result<UniqueFd> make_socket(int family) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return fail_errno(errno, "cannot create a socket");
    return fd;
}

void set_option(int fd, int level, int option, int value = 1) {
    setsockopt(fd, level, option, &value, sizeof value);
}

Result<SocketAddress> abstract_address(const std::string& name) {
    SocketAddress address;
    auto* un = reinterpret_cast<sockaddr_un*>(&address.storage);
    if (name.empty() || name.size() > sizeof un->sun_path - 1)
        return fail(Code::invalid, "the Unix socket name \"{}\" has {} bytes", name, name.size())
            .advice("give a name of 1 to {} bytes", sizeof un->sun_path - 1);
    un->sun_family = AF_UNIX;
    std::memcpy(un->sun_path + 1, name.data(), name.size());
    address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

Result<UniqueFd> listen_at(const SocketAddress& address, const HostPort& at) {
    TUTTI_ASSIGN(UniqueFd fd, make_socket(address.storage.ss_family));
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR);
    if (bind(fd.get(), address.get(), address.bytes) == 0 && listen(fd.get(), backlog) == 0)
        return fd;
    if (errno == EADDRINUSE && at.port == 0)
        return fail_errno(errno, fmt::format("no port is free on {}", at.host))
            .advice(
                "end programs that have ports open (`ss -ltnp` lists them), or widen the range "
                "`sysctl net.ipv4.ip_local_port_range`");
    if (errno == EADDRINUSE)
        return fail_errno(errno, fmt::format("port {} on {} is in use", at.port, at.host))
            .advice("end the program that uses the port (`ss -ltnp` names it), or choose another");
    auto failed = fail_errno(errno, fmt::format("cannot listen on {}", format_host_port(at)));
    if (failed.value().sys_errno == EADDRNOTAVAIL)
        return std::move(failed).advice(
            "use an address of this machine; `tutti-info interfaces` lists them");
    return failed;
}

struct Ends {
    SocketAddress own, peer;
};
Ends ends_of(int fd) {
    Ends ends;
    ends.own.bytes = ends.peer.bytes = sizeof(sockaddr_storage);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&ends.own.storage), &ends.own.bytes) != 0 ||
        getpeername(fd, reinterpret_cast<sockaddr*>(&ends.peer.storage), &ends.peer.bytes) != 0)
        return {};
    return ends;
}

SocketAddress address_of(ByteView sockaddr_bytes) {
    SocketAddress address;
    if (sockaddr_bytes.size() > sizeof address.storage) return {};
    std::memcpy(&address.storage, sockaddr_bytes.data(), sockaddr_bytes.size());
    address.bytes = static_cast<socklen_t>(sockaddr_bytes.size());
    return address;
}

bool within_machine(const SocketAddress& own, const SocketAddress& peer) {
    return peer.is_loopback() || own.host() == peer.host();
}

// A retry on a port of the ephemeral range can connect the socket to itself: TCP's simultaneous
// open.
bool connected_to_itself(int fd) {
    const auto [own, peer] = ends_of(fd);
    return own == peer;
}

// 0, or the errno of the failure; ETIMEDOUT also at the deadline.
int finish_connect(int fd, Deadline deadline) {
    pollfd waiting{.fd = fd, .events = POLLOUT, .revents = 0};
    while (true) {
        const int ready = poll_serving(&waiting, static_cast<int>(deadline.left_ms(60'000)));
        if (ready > 0) break;
        if (ready < 0 && errno != EINTR) return errno;
        if (deadline.passed() || wait_cancelled()) return ETIMEDOUT;
    }
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
    return error;
}

Result<UniqueFd> connect_once(const SocketAddress& address, Deadline deadline) {
    TUTTI_ASSIGN(UniqueFd fd, make_socket(address.storage.ss_family));
    if (address.storage.ss_family != AF_UNIX) set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY);
    if (connect(fd.get(), address.get(), address.bytes) != 0) {
        const int error =
            errno == EINPROGRESS || errno == EINTR ? finish_connect(fd.get(), deadline) : errno;
        if (error != 0) return fail_errno(error, "last cause");
    }
    if (connected_to_itself(fd.get())) return fail_errno(ECONNREFUSED, "last cause");
    return fd;
}

// Connect errors that may go away while a peer or its network is still starting.
bool is_passing(int error) {
    switch (error) {
        case ECONNREFUSED:
        case ECONNRESET:
        case ECONNABORTED:
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case EHOSTDOWN:
        case ENETUNREACH:
        case ENETDOWN:
        case EADDRNOTAVAIL:  // out of local ports
        case EAGAIN:
        case EINTR:
            return true;
        default:
            return false;
    }
}

void pause_before(int attempt, Deadline deadline) {
    const int64_t wanted = std::min(first_pause_ms << std::min(attempt, 10), longest_pause_ms);
    poll_serving(nullptr, static_cast<int>(deadline.left_ms(wanted)));
}

Result<UniqueFd> try_all(const std::vector<SocketAddress>& addresses, Deadline deadline) {
    Result<UniqueFd> last = fail(Code::system, "no address");
    for (std::size_t i = 0; i < addresses.size(); ++i) {
        const bool final_one = i + 1 == addresses.size();
        const Deadline limit = final_one ? deadline : deadline.within_ms(one_of_several_ms);
        last = connect_once(addresses[i], limit);
        if (last || deadline.passed() || wait_cancelled()) break;
    }
    return last;
}

// "": the cause's own advice is used.
std::string_view connect_advice(int error) {
    switch (error) {
        case ECONNREFUSED:
        case ECONNRESET:
            return "check that the other side runs, and that it listens at this address";
        case ETIMEDOUT:
        case EHOSTUNREACH:
        case EHOSTDOWN:
        case ENETUNREACH:
        case ENETDOWN:
            return "check the network and the firewalls between the two hosts, and that "
                   "TUTTI_IFACE names an interface which the other hosts reach";
        case EADDRNOTAVAIL:
            return "widen the range of local ports (sysctl net.ipv4.ip_local_port_range)";
        case EAGAIN:
            return "check that the other side is not stopped: its queue of connections is full";
        default:
            return {};
    }
}

ErrorResult not_connected(Error cause, std::string_view to, int64_t start_ns, Deadline deadline) {
    const bool late = deadline.passed();
    if (const auto advice = connect_advice(cause.sys_errno); !advice.empty()) cause.advice = advice;
    if (late && cause.code != Code::invalid) cause.code = Code::timeout;
    return wrap(std::move(cause), fmt::format("cannot connect to {} ({} {} ms)", to,
                                              late ? "gave up after" : "tried for",
                                              (now_ns() - start_ns) / 1'000'000));
}

}  // namespace

Result<UniqueFd> listen_tcp(const HostPort& at, Deadline deadline) {
    TUTTI_ASSIGN(const auto addresses, resolve(at, deadline));
    Result<UniqueFd> last = fail(Code::system, "no address");
    for (const SocketAddress& address : addresses) {
        last = listen_at(address, at);
        // If a name resolves to two families and the port is in use on the first, the second is not
        // tried.
        if (last || last.error().sys_errno == EADDRINUSE) break;
    }
    return last;
}

Result<UniqueFd> listen_unix(const std::string& name) {
    TUTTI_ASSIGN(const SocketAddress address, abstract_address(name));
    TUTTI_ASSIGN(UniqueFd fd, make_socket(AF_UNIX));
    if (bind(fd.get(), address.get(), address.bytes) != 0 || listen(fd.get(), backlog) != 0)
        return fail_errno(errno, fmt::format("cannot listen on Unix socket @{}", name));
    return fd;
}

Result<uint16_t> local_port(int fd) {
    SocketAddress address;
    address.bytes = sizeof address.storage;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0)
        return fail_errno(errno, "cannot read a socket's own address");
    if (const auto port = address.port()) return *port;
    return fail(Code::invalid, "file descriptor {} is not a TCP socket", fd)
        .advice("pass a TCP socket");
}

Result<UniqueFd> connect_tcp(const HostPort& to, const ConnectOptions& options) {
    const int64_t start_ns = now_ns();
    std::optional<Error> not_found;
    for (int attempt = 0;; ++attempt) {
        Error cause;
        bool passing = true;  // a name may become known once its host has started
        if (const auto addresses = resolve(to, options.deadline)) {
            auto connected = try_all(*addresses, options.deadline);
            if (connected) return connected;
            cause = std::move(connected.error());
            passing = is_passing(cause.sys_errno);
        } else if (addresses.error().code == Code::timeout) {
            // A look-up that the deadline interrupted is a less useful cause than one that was
            // answered.
            cause = not_found.value_or(addresses.error());
        } else {
            if (!not_found && options.keep_trying)
                log::warn(wrap(addresses.error(), "retrying until the deadline"));
            not_found = cause = addresses.error();
        }
        if (!options.keep_trying || !passing || options.deadline.passed() || wait_cancelled())
            return not_connected(std::move(cause), format_host_port(to), start_ns,
                                 options.deadline);
        pause_before(attempt, options.deadline);
    }
}

void end_with_peers_host(int fd) {
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, silence_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, asking_s);
    // Also for data that the peer does not acknowledge; it replaces TCP_KEEPCNT.
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, vanished_ms);
}

void bound_if_local(int fd) {
    const auto [own, peer] = ends_of(fd);
    if (!own.port() || !within_machine(own, peer)) return;
    set_option(fd, SOL_SOCKET, SO_SNDBUF, local_buffer_bytes);
}

// If another thread closes the descriptor meanwhile and opens it for another connection within this
// machine, this bounds that connection instead, which does no harm.
void bound_hidden_if_local(ByteView own_listener, ByteView peer_listener) {
    const SocketAddress own = address_of(own_listener), peer = address_of(peer_listener);
    if (!own.port() || !peer.port() || !within_machine(own, peer)) return;
    std::error_code failed;
    for (std::filesystem::directory_iterator at("/proc/self/fd", failed), end; !failed && at != end;
         at.increment(failed)) {
        int fd = -1;
        const std::string name = at->path().filename();
        std::from_chars(name.data(), name.data() + name.size(), fd);
        const Ends ends = ends_of(fd);
        if (ends.own == own || ends.peer == peer) bound_if_local(fd);
    }
}

Result<UniqueFd> connect_unix(const std::string& name, const ConnectOptions& options) {
    TUTTI_ASSIGN(const SocketAddress address, abstract_address(name));
    const int64_t start_ns = now_ns();
    for (int attempt = 0;; ++attempt) {
        auto connected = connect_once(address, options.deadline);
        if (connected) return connected;
        // EAGAIN: the listener's queue is full, and poll() cannot wait for that.
        const int error = connected.error().sys_errno;
        const bool again = error == EAGAIN || (options.keep_trying && is_passing(error));
        if (!again || options.deadline.passed() || wait_cancelled())
            return not_connected(std::move(connected.error()), "Unix socket @" + name, start_ns,
                                 options.deadline);
        pause_before(attempt, options.deadline);
    }
}

}  // namespace tutti::net
