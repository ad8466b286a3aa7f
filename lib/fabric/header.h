// The header in front of every message of a fabric, and the address that a rank publishes.
#pragma once

#include <bit>
#include <string>
#include <type_traits>
#include <vector>

#include "fabric/port.h"
#include "transport/channel.h"

namespace tutti::fabric {

inline constexpr uint32_t protocol_version = 5;

/// As many as lib/select gives each stream: a lane's number says which it is of.
inline constexpr std::size_t lanes_per_stream = 8;

/// hello: whoever says it wants to send; its payload is how to answer. welcome: the answer has been
/// understood, and nothing but hello may come before it. open: a channel. farewell: the bye was
/// heard. contribution: to a flat exchange, which has neither channels nor credits.
enum class Kind : uint8_t { hello = 1, welcome, open, data, credit, bye, farewell, contribution };

inline constexpr uint32_t header_magic = 0x54554600;  // the low byte is the kind
inline constexpr uint32_t header_magic_mask = 0xffffff00;

struct Header {
    uint32_t magic = 0;
    Rank sender = nobody;
    uint64_t nonce = 0;  // the receiver's: only who has read its address knows it
    uint32_t comm = 0;
    uint16_t lane = 0;
    uint16_t credits = 0;  // given back for the opposite direction of the same (comm, lane)
    uint32_t bytes = 0;    // of payload
    // data: which of its channel; contribution: which of its stream (the lane); bye: how many of
    // both there were in all.
    uint32_t position = 0;
    Tag tag;

    static uint32_t magic_of(Kind kind) { return header_magic | static_cast<uint32_t>(kind); }
    Kind kind() const { return static_cast<Kind>(magic & ~header_magic_mask); }
};
static_assert(offsetof(Header, sender) == sender_offset);
static_assert(sizeof(Header) == header_bytes && std::is_trivially_copyable_v<Header>);
static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory");

/// A rank's ports, as the store has them.
struct Address {
    std::string version;  // of the library
    uint64_t nonce = 0;
    std::vector<Bytes> ports;
};

/// "ucx 1.13 1 <nonce> <port> …", numbers and ports in hexadecimal.
std::string encode_address(std::string_view name, const Address& address);
/// invalid: not an address of that library, or of another version than ours.
Result<Address> decode_address(std::string_view name, std::string_view our_version,
                               std::string_view text);

}  // namespace tutti::fabric
