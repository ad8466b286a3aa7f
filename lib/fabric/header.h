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

/// Equal to the number in lib/select, so that a lane's number gives its stream.
inline constexpr std::size_t lanes_per_stream = 8;

/// hello: the sender wants to send; the payload is its own address. welcome: the sender has
/// connected to that address; only a hello may precede it. open: a channel. farewell: the sender
/// has received the bye. contribution: to a flat exchange, which has neither channels nor credits.
enum class Kind : uint8_t { hello = 1, welcome, open, data, credit, bye, farewell, contribution };

inline constexpr uint32_t header_magic = 0x54554600;  // the low byte is the kind
inline constexpr uint32_t header_magic_mask = 0xffffff00;

struct Header {
    uint32_t magic = 0;
    Rank sender = nobody;
    uint64_t nonce = 0;  // the receiver's: only a sender that has read its address knows it
    uint32_t comm = 0;
    uint16_t lane = 0;
    uint16_t credits = 0;  // returned for the opposite direction of the same (comm, lane)
    uint32_t bytes = 0;    // of payload
    // data: the number of the message on its channel; contribution: the number of the run on its
    // stream (the lane); bye: the number of data messages and contributions that the sender has
    // sent.
    uint32_t position = 0;
    Tag tag;

    static uint32_t magic_of(Kind kind) { return header_magic | static_cast<uint32_t>(kind); }
    Kind kind() const { return static_cast<Kind>(magic & ~header_magic_mask); }
};
static_assert(offsetof(Header, sender) == sender_offset);
static_assert(sizeof(Header) == header_bytes && std::is_trivially_copyable_v<Header>);
static_assert(std::endian::native == std::endian::little, "headers travel as they lie in memory");

/// A rank's ports, as published in the store.
struct Address {
    std::string version;  // the library's version
    uint64_t nonce = 0;
    std::vector<Bytes> ports;
};

/// "ucx 1.13 1 <nonce> <port> …", numbers and ports in hexadecimal.
std::string encode_address(std::string_view name, const Address& address);
/// invalid: not an address of that library, or of another version than ours.
Result<Address> decode_address(std::string_view name, std::string_view our_version,
                               std::string_view text);

}  // namespace tutti::fabric
