// Helpers of the net tests: pairs of sockets, and readable failures.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <utility>

#include "base/fd.h"
#include "net/socket.h"
#include "support/catch.h"

namespace tutti::net {

inline std::string message_of(const Error& error) {
    return error.message;
}

inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

inline Deadline soon() {
    return Deadline::after_ms(20'000);
}

inline std::pair<UniqueFd, UniqueFd> socket_pair() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

inline Bytes random_text(std::mt19937& random, std::size_t bytes) {
    Bytes out(bytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random());
    return out;
}

inline bool ipv6_works() {
    return listen_tcp({.host = "::1", .port = 0}).has_value();
}

/// Whether the other side has closed: an end or a reset is the next thing to be read.
inline bool is_closed(int fd, Deadline deadline) {
    std::byte scratch[256];
    while (true) {
        const auto got = recv_all(fd, std::span(scratch, 1), deadline);
        if (!got) return got.error().code == Code::peer_lost;
    }
}

}  // namespace tutti::net
