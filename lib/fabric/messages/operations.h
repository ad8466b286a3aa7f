// A message port's unfinished operations. The library gets the address of an operation with each
// call and returns it with the completion.
#pragma once

#include <array>

#include "fabric/messages/prefix.h"
#include "transport/registration/library_memory.h"

namespace tutti::fabric {

inline constexpr uint64_t no_address = ~uint64_t{0};

struct MessagePeer {
    Rank rank = nobody;
    uint64_t port = 0;              // the port's number
    uint64_t address = no_address;  // the library's address of its endpoint
    uint64_t second = no_address;   // the library's address of its second endpoint
    bool connected = false;         // by the engine; otherwise known from its messages
    bool reached = false;           // a message to it was sent
    bool gone = false;              // lost or disconnected
    int64_t refused_since_ns = 0;   // when the library began to refuse sends to it though idle; 0:
                                    // it does not
    std::size_t staged = 0;         // send buffers that it holds
    std::size_t leaving = 0;        // sends that the library has not finished
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

/// The port's memory for one message.
struct MessageBuffer : OpContext {
    using OpContext::OpContext;
    bool second = false;  // through the second endpoints
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
    uint64_t number = 0;
    State state = State::announced;
    const std::byte* data = nullptr;
    void* context = nullptr;
    uint64_t tag = 0;
    Registered registered;
    StagedMessage* staged = nullptr;  // the header sent with the payload, if it was not announced
};

/// A payload that a peer has announced.
struct PayloadIn : OpContext {
    PayloadIn() : OpContext(Kind::payload_in) {}
    enum class State : uint8_t { announced, fetching, ended };
    uint64_t number = 0;
    State state = State::announced;
    uint64_t theirs = 0;  // its number at the sender
    void* context = nullptr;
    Registered registered;

    /// 48 bits, because some libraries' tags are no longer.
    uint64_t tag() const { return number & 0xffff'ffff'ffff; }
};

}  // namespace tutti::fabric
