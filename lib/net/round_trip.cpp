#include "net/round_trip.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace tutti::net {
namespace {

// Two fields of the kernel's tcp_info, as 32-bit words: glibc's structure ends before the minimum
// round trip, and the kernel's own header defines the same name again.
constexpr std::size_t smoothed_word = 17, least_word = 37;
static_assert(offsetof(tcp_info, tcpi_rtt) == smoothed_word * sizeof(uint32_t));

}  // namespace

double round_trip_us(int fd) {
    std::array<uint32_t, least_word + 1> info{};
    socklen_t bytes = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, info.data(), &bytes) != 0) return 0;
    if (bytes < sizeof info) return info[smoothed_word];
    const uint32_t least = info[least_word];
    return least == std::numeric_limits<uint32_t>::max() ? 0 : least;
}

}  // namespace tutti::net
