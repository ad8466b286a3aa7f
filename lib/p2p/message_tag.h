// Tags of messages between two ranks.
#pragma once

#include "p2p/transfer.h"

namespace tutti {

/// The kind of a message on a lane, in Tag::call.
enum class MessageKind : uint8_t { whole = 1, announce, go_on, refuse, data };

inline constexpr uint32_t message_dtype_shift = 8;

/// total: the bytes of the whole message, of which `bytes` are a piece.
inline Tag make_message_tag(MessageKind kind, const Transfer& transfer, std::size_t bytes,
                            std::size_t total) {
    Tag tag;
    tag.sequence = transfer.id;
    tag.count = bytes;
    tag.call = static_cast<uint32_t>(kind) | static_cast<uint32_t>(transfer.dtype)
                                                 << message_dtype_shift;
    tag.root = transfer.user_tag;
    tag.plan = total;
    return tag;
}

inline MessageKind kind_of(const Tag& tag) {
    return static_cast<MessageKind>(tag.call & 0xff);
}

inline Dtype message_dtype(const Tag& tag) {
    return static_cast<Dtype>(tag.call >> message_dtype_shift & 0xff);
}

/// True if the receive takes a message with that tag from that rank.
inline bool wants(const Transfer& receive, Rank from, const Tag& tag) {
    return (receive.peer == any_source || receive.peer == from) && receive.user_tag == tag.root;
}

}  // namespace tutti
