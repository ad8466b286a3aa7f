// A send or a receive under way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/request.h"
#include "reduce/reduce.h"

namespace tutti {

inline constexpr Rank any_source = -1;

/// What a receive got.
struct Received {
    Rank source = nobody;
    int32_t tag = 0;
    std::size_t count = 0;  // elements
};

struct Transfer final : Request {
    bool sends = false;
    Rank peer = nobody;  // any_source: a receive from whoever comes first
    int32_t user_tag = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;  // to send; of the buffer to receive into
    Dtype dtype = Dtype::uint8;
    bool held = false;  // a send whose bytes are still to come: it has its place in the order only

    // The engine's.
    uint64_t id = 0;        // rendezvous: the sender's number for this message
    std::size_t moved = 0;  // bytes sent or arrived
    std::size_t total = 0;  // bytes of the message that is received
    bool offered = false;
    Received received;
    Received* into = nullptr;  // where the caller wants to read it, if anywhere
    int64_t left_ns = 0;       // since when the partner is known to have left

    /// Whom it waits for: of a receive from anyone, once a message was announced, its sender.
    Rank partner() const { return !sends && id != 0 ? received.source : peer; }
};

}  // namespace tutti
