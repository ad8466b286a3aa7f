// A message port's unfinished operations: calls of the library that have not completed, not
// collectives. The library gets the address of an operation with each call and returns it with the
// completion.
#pragma once

#include <array>

#include "fabric/messages/prefix.h"
#include "transport/registration/library_memory.h"

namespace tutti::fabric {

inline constexpr uint64_t no_address = ~uint64_t{0};

/// The port of another rank, as this port knows it.
struct MessagePeer {
    Rank rank = nobody;
    uint64_t port = 0;              // its port's random number (Prefix)
    uint64_t address = no_address;  // the library's handle of its endpoint
    uint64_t second = no_address;   // of its second endpoint (port.h)
    bool connected = false;         // by Port::connect(); false: known only from its messages
    bool reached = false;           // the library has completed a send to it
    bool gone = false;              // lost or disconnected
    std::size_t again = 0;          // messages to it that the port sends again
    unsigned failed = 0;            // messages that failed before it was reached
    int64_t refused_since_ns = 0;   // since when the library has refused each send to this peer,
                                    // although nothing to it is unfinished; 0: it does not
    std::size_t staged = 0;         // send buffers of ours with messages to it
    std::size_t leaving = 0;        // sends to it that the library has not completed
};

struct OpContext {
    enum class Kind : uint8_t { receive, staged, payload_out, payload_in };
    explicit OpContext(Kind in_kind) : kind(in_kind) {}

    /// The library's own space; first, because the library receives its address as that of the
    /// whole operation.
    static constexpr std::size_t library_bytes = 64;
    alignas(16) std::array<std::byte, library_bytes> library{};
    Kind kind;
    MessagePeer* peer = nullptr;  // nullptr: a receive, which a message of any peer may complete
    std::size_t bytes = 0;        // of the message, or of the payload
};

/// A buffer of the port's own for one message.
struct MessageBuffer : OpContext {
    using OpContext::OpContext;
    bool second = false;  // sent or received on the second endpoint
    std::byte* data = nullptr;
    void* registration = nullptr;  // as Registered::handle()
};

class ReceiveBuffers;

/// A receive buffer; bytes: its size.
struct BounceBuffer : MessageBuffer {
    BounceBuffer() : MessageBuffer(Kind::receive) {}
    ReceiveBuffers* of = nullptr;
};

/// A send buffer.
struct StagedMessage : MessageBuffer {
    StagedMessage() : MessageBuffer(Kind::staged) {}
};

/// A payload sent directly from the caller's memory.
struct PayloadOut : OpContext {
    PayloadOut() : OpContext(Kind::payload_out) {}
    enum class State : uint8_t { announced, granted, sending };
    uint64_t number = 0;  // in Prefix::number, names the payload to the receiver
    State state = State::announced;
    const std::byte* data = nullptr;
    void* context = nullptr;  // of Port::send()
    uint64_t tag = 0;         // the library's, chosen by the receiver in its grant
    Registered registered;
    StagedMessage* staged = nullptr;  // the header sent with the payload, if it was not announced
};

/// A payload that a peer has announced.
struct PayloadIn : OpContext {
    PayloadIn() : OpContext(Kind::payload_in) {}
    enum class State : uint8_t { announced, fetching, ended };
    uint64_t number = 0;  // this port's, which makes the tag
    State state = State::announced;
    uint64_t theirs = 0;      // the sender's number of the payload (PayloadOut::number)
    void* context = nullptr;  // of Port::fetch()
    Registered registered;

    /// The library's tag under which the sender sends the payload.
    /// 48 bits, because some libraries' tags are no longer.
    uint64_t tag() const { return number & 0xffff'ffff'ffff; }
};

}  // namespace tutti::fabric
