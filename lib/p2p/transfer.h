// A send or a receive under way.
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
    /// Takes a message that came whole: the device need not be ready for it yet.
    virtual void keep(const std::byte* from, std::size_t bytes) = 0;
    /// Brings a piece of one there. False: it is not there yet; to be asked again, with the same.
    virtual bool copy_in(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
};

struct Transfer final : Request {
    bool sends = false;
    Rank peer = nobody;  // any_source: a receive from whoever comes first
    int32_t user_tag = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;  // to send; of the buffer to receive into
    Dtype dtype = Dtype::uint8;
    // It has its place in the order only: a send's bytes are still to come, a receive's memory is
    // still in use.
    bool held = false;
    bool on_device = false;  // memory is a GPU's, which the channel sends from or receives into
    RecvTarget* recv_target = nullptr;  // of such a receive

    // The engine's.
    uint64_t id = 0;        // rendezvous: the sender's number for this message
    std::size_t moved = 0;  // bytes sent or arrived
    std::size_t total = 0;  // bytes of the message that is received
    bool offered = false;
    bool needs_channel = false;  // a receive that is to know what its channel takes: opens it
    Received received;
    Received* into = nullptr;  // where the caller wants to read it, if anywhere
    int64_t left_ns = 0;       // since when the partner is known to have left or to be lost

    /// Whom it waits for: of a receive from anyone, once a message was announced, its sender.
    Rank partner() const { return !sends && id != 0 ? received.source : peer; }
};

}  // namespace tutti
