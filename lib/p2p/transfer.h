// A pending send or receive.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/reduce.h"
#include "run/request.h"

namespace tutti {

inline constexpr Rank any_source = -1;

/// The source, tag and length of the message that a receive got.
struct Received {
    Rank source = nobody;
    int32_t tag = 0;
    std::size_t count = 0;  // elements
};

/// Copies a receive's message to GPU memory, if the message has arrived in host memory. The
/// engine's owner calls it.
class RecvTarget {
public:
    virtual ~RecvTarget() = default;
    /// Keeps a message that arrived whole: the device need not be ready for it yet.
    virtual void keep(const std::byte* from, std::size_t bytes) = 0;
    /// Copies a piece of a message to the device. False: not done yet; call again with the same
    /// arguments.
    virtual bool copy_in(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
};

struct Transfer final : Request {
    bool sends = false;
    Rank peer = nobody;  // any_source: a receive from any rank
    int32_t user_tag = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;  // of the message to send, or of the receive's buffer
    Dtype dtype = Dtype::uint8;
    // The transfer has its place in the order, but must not move yet: a send's bytes are still to
    // come, or a receive's memory is still in use.
    bool held = false;
    bool on_device = false;  // memory is a GPU's, which the channel sends from or receives into
    RecvTarget* recv_target = nullptr;  // of a receive into GPU memory

    // The engine's.
    uint64_t id = 0;        // rendezvous: the sender's number for this message
    std::size_t moved = 0;  // bytes sent or arrived
    std::size_t total = 0;  // bytes of the message that is received
    bool offered = false;
    bool needs_channel = false;  // a receive that opens its channel: may it take device memory?
    Received received;
    Received* into = nullptr;  // where the caller reads it; may be null
    int64_t left_ns = 0;       // when the partner was first seen to be gone; 0: it is not

    /// The rank for which the transfer waits. For a receive from any_source, once a message was
    /// announced: the sender.
    Rank partner() const { return !sends && id != 0 ? received.source : peer; }
};

}  // namespace tutti
