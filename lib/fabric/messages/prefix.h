// Every message between two message ports begins with a prefix, then comes the engine's header
// where there is one, then the payload of an eager message or the library's address of the sender
// that announces a large one.
//
// Large payloads go apart, as tagged messages without any prefix: the receiver, who has posted the
// place, chose the tag.
#pragma once

#include "fabric/port.h"

namespace tutti::fabric {

inline constexpr std::size_t max_address_bytes = 512;

/// Ports have random numbers, which only the job's store tells: a port drops what was meant for
/// another one (an older job's, at the same address) unread.
struct Prefix {
    enum class Kind : uint32_t {
        eager = 0x7441'0001,  // header and payload
        announce,             // header; the payload waits under `number` at the sender
        grant,                // the payload `number` is wanted, under the tag in `bytes`
        drop,                 // the payload `number` is not wanted
        ping,                 // nothing: that it leaves says that the peer is there
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

/// Whether a prefix of a message of that length is one that a port could have sent.
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
