// Every message between two message ports begins with a prefix. The engine's header follows, if
// there is one. Then comes the payload of an eager message, or the library's address of the sender
// that announces a large one.
//
// Large payloads are separate tagged messages without a prefix: the receiver has chosen the tag and
// posted the receive.
#pragma once

#include "fabric/port.h"

namespace tutti::fabric {

inline constexpr std::size_t max_address_bytes = 512;

/// Ports have random numbers, which peers learn only from the job's store: a port drops messages
/// for another port (an older job's, at the same address) unread.
struct Prefix {
    enum class Kind : uint32_t {
        eager = 0x7441'0001,  // header and payload
        announce,             // header; the payload waits under `number` at the sender
        grant,                // the receiver wants the payload `number`, under the tag in `bytes`
        drop,                 // the receiver does not want the payload `number`
        ping,                 // empty: it only shows that the peer is reachable
    };

    Kind kind{};
    Rank source_rank = nobody;
    uint64_t source = 0;  // port numbers
    uint64_t target = 0;
    uint64_t number = 0;
    uint64_t bytes = 0;  // of the payload
};
static_assert(sizeof(Prefix) == 40);

inline constexpr std::size_t envelope_bytes = sizeof(Prefix) + header_bytes;

/// Whether a port could have sent a message of that length with this prefix.
inline bool plausible(const Prefix& prefix, std::size_t bytes, std::size_t eager_bytes) {
    switch (prefix.kind) {
        case Prefix::Kind::eager:
            return bytes >= envelope_bytes && prefix.bytes == bytes - envelope_bytes &&
                   prefix.bytes <= eager_bytes;
        case Prefix::Kind::announce:
            return bytes > envelope_bytes && bytes <= envelope_bytes + max_address_bytes &&
                   prefix.bytes > eager_bytes;
        case Prefix::Kind::grant:
        case Prefix::Kind::drop:
        case Prefix::Kind::ping:
            return bytes == sizeof(Prefix);
    }
    return false;
}

}  // namespace tutti::fabric
