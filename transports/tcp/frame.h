// The format of a TCP connection: a fixed header, then the payload of a data frame.
#pragma once

#include <bit>
#include <type_traits>

#include "transport/channel.h"
#include "transport/posted/cells.h"

namespace tutti::tcp {

using tutti::credits_per_channel;

inline constexpr uint32_t protocol_version = 3;

/// So large that system calls and headers do not matter, so small that a message that the kernel
/// has just written is still in the second-level cache when it is reduced.
inline constexpr std::size_t max_message_bytes = 256 * 1024;
/// Between hosts that are far apart messages are larger, as far as both ranks' windows allow: a
/// lane's few messages must last for a round trip.
inline constexpr std::size_t max_far_message_bytes = std::size_t{64} << 20;
/// A rank's answer to a hello, before the first frame. crossing: the answering rank is connecting
/// to the caller at the same time, and both ranks use that connection.
enum class Answer : uint8_t { taken = 1, crossing };

enum class Kind : uint8_t { open = 1, data, credit, bye };

inline constexpr uint32_t frame_magic = 0x54555400;  // the low byte is the kind
inline constexpr uint32_t frame_magic_mask = 0xffffff00;

struct Header {
    uint32_t magic = 0;
    uint32_t comm = 0;
    uint16_t lane = 0;
    uint16_t credits = 0;  // returned for the opposite direction of the same (comm, lane)
    uint32_t bytes = 0;    // of the payload after this header; data only
    Tag tag;

    static Header of(Kind kind, const ChannelId& id) {
        return {.magic = magic_of(kind), .comm = id.comm, .lane = id.lane, .tag = {}};
    }
    static uint32_t magic_of(Kind kind) { return frame_magic | static_cast<uint32_t>(kind); }
    Kind kind() const { return static_cast<Kind>(magic & ~frame_magic_mask); }
};
static_assert(sizeof(Header) == 48 && std::is_trivially_copyable_v<Header>);
static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory");

}  // namespace tutti::tcp
