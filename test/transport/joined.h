// The transports that the conformance suite holds to the channel contract. To join: a line here,
// and the dependency in meson.build.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "transport/endpoints.h"

namespace tutti::test {

std::unique_ptr<Transport> make_loopback_transport(const TransportContext& context);
std::unique_ptr<Transport> make_plain_transport(const TransportContext& context);

inline constexpr JoinedTransport all_joined[] = {
    {"inproc", make_inproc_transport},     {"shm", make_shm_transport},
    {"tcp", make_tcp_transport},
#if TUTTI_HAVE_UCX
    {"ucx", make_ucx_transport},
#endif
#if TUTTI_HAVE_OFI
    {"ofi", make_ofi_transport},
#endif
    {"loopback", make_loopback_transport}, {"plain", make_plain_transport},
};

/// The transports that TUTTI_TEST_TRANSPORTS names, or all: libraries that are loaded late are
/// tested in processes of their own, where sanitizers are set for them.
inline const std::vector<JoinedTransport> joined = [] {
    const char* wanted = std::getenv("TUTTI_TEST_TRANSPORTS");
    std::vector<JoinedTransport> list;
    for (const JoinedTransport& kind : all_joined)
        if (!wanted || std::strstr(wanted, kind.name)) list.push_back(kind);
    return list;
}();

using Buffer = std::vector<std::byte>;

inline Buffer pattern(std::size_t bytes, uint64_t seed) {
    Buffer out(bytes);
    // Words, because bytes one by one took a third of the thread sanitizer's time.
    uint64_t word = seed;
    for (std::size_t at = 0; at < bytes; at += sizeof word) {
        word = word * 0x5851f42d4c957f2d + 0x14057b7ef767814f;
        const uint64_t mixed = word ^ word >> 32;
        std::memcpy(out.data() + at, &mixed, std::min(sizeof mixed, bytes - at));
    }
    return out;
}

}  // namespace tutti::test
