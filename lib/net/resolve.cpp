#include "net/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <chrono>
#include <cstring>
#include <future>

#include "os/signals.h"
#include "os/thread.h"

namespace tutti::net {
namespace {

struct LookupResult {
    int error = 0;
    int saved_errno = 0;
    std::vector<SocketAddress> addresses;
};

LookupResult look_up(const HostPort& what, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    // Without AI_ADDRCONFIG, so that ::1 works on a machine whose only IPv6 address it is.
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    LookupResult answer;
    answer.error =
        getaddrinfo(what.host.c_str(), std::to_string(what.port).c_str(), &hints, &found);
    answer.saved_errno = errno;
    if (answer.error != 0) return answer;
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
        if (a->ai_addrlen > sizeof(sockaddr_storage)) continue;
        SocketAddress address;
        std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
        address.bytes = a->ai_addrlen;
        answer.addresses.push_back(address);
    }
    freeaddrinfo(found);
    return answer;
}

}  // namespace

bool SocketAddress::is_loopback() const {
    if (storage.ss_family == AF_INET) {
        const auto* in = reinterpret_cast<const sockaddr_in*>(&storage);
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) return in6->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

std::string SocketAddress::host() const {
    char text[NI_MAXHOST];
    const int error = getnameinfo(get(), bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
    return error == 0 ? text : "?";
}

std::optional<uint16_t> SocketAddress::port() const {
    if (storage.ss_family == AF_INET)
        return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
    if (storage.ss_family == AF_INET6)
        return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
    return std::nullopt;
}

bool SocketAddress::operator==(const SocketAddress& other) const {
    return port() && port() == other.port() && host() == other.host();
}

Result<std::vector<SocketAddress>> resolve(const HostPort& what, Deadline deadline) {
    LookupResult answer = look_up(what, AI_NUMERICHOST);
    if (answer.error == EAI_NONAME) {
        const auto too_late = [&] {
            return fail(Code::timeout, "timed out looking up the host name \"{}\"", what.host)
                .advice("check DNS on this machine, or use the host's address");
        };
        if (deadline.passed()) return too_late();
        // getaddrinfo() has no time-out, so a thread that can be abandoned looks the name up.
        auto task = std::make_shared<std::packaged_task<LookupResult()>>(
            [what] { return look_up(what, 0); });
        auto future = task->get_future();
        {
            const NoSignals for_the_thread;
            TUTTI_ASSIGN(Thread thread,
                         Thread::start("a thread to look up a host name", [task] { (*task)(); }));
            thread.detach();
        }
        if (deadline.never()) {
            future.wait();
        } else {
            const int64_t left_ns = std::max<int64_t>(0, deadline.at_ns() - now_ns());
            if (future.wait_for(std::chrono::nanoseconds(left_ns)) != std::future_status::ready)
                return too_late();
        }
        answer = future.get();
    }
    if (answer.error == EAI_SYSTEM)
        return fail_errno(answer.saved_errno,
                          fmt::format("cannot look up the host name \"{}\"", what.host));
    if (answer.error != 0)
        return fail(Code::system, "cannot look up the host name \"{}\": {}", what.host,
                    gai_strerror(answer.error))
            .advice("add the name to DNS or to /etc/hosts of this machine, or use the address");
    if (answer.addresses.empty())
        return fail(Code::system, "the host name \"{}\" has no address", what.host)
            .advice("add an address for it to DNS or to /etc/hosts of this machine");
    return std::move(answer.addresses);
}

}  // namespace tutti::net
