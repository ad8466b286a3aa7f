// The operations that a message port has under way. The library gets the address of an operation
// with each call and gives it back with the completion.
#pragma once

#include <array>

#include "fabric/messages/prefix.h"
#include "transport/registration/library_memory.h"

namespace tutti::fabric {

inline constexpr uint64_t no_address = ~uint64_t{0};

struct MessagePeer {
    Rank rank = nobody;
    uint64_t port = 0;              // its number
    uint64_t address = no_address;  // as the library names its endpoint
    uint64_t second = no_address;   // its second endpoint's
    bool connected = false;         // by the engine; otherwise known from what it sent
    bool reached = false;           // something that was sent has left
    bool gone = false;              // lost or disconnected
    int64_t refused_since_ns = 0;   // the library takes nothing for it, though idle; 0: not so
    std::size_t staged = 0;         // buffers of ours
    std::size_t leaving = 0;        // sends that the library has not finished
};

struct OpContext {
    enum class Kind : uint8_t { receive, staged, payload_out, payload_in };
    explicit OpContext(Kind in_kind) : kind(in_kind) {}

    /// The library's own, and first: it takes the whole for that.
    static constexpr std::size_t library_bytes = 64;
    alignas(16) std::array<std::byte, library_bytes> library{};
    Kind kind;
    MessagePeer* peer = nullptr;  // nullptr: a receive's, which any peer's message may end
    std::size_t bytes = 0;        // of the message, or of the payload
};

/// Memory of the port's for one message.
struct MessageBuffer : OpContext {
    using OpContext::OpContext;
    bool second = false;  // by the second endpoints
    std::byte* data = nullptr;
    void* registration = nullptr;  // as Registered::handle()
};

class ReceiveBuffers;

/// A buffer that a message comes in; bytes: it has room for so many.
struct BounceBuffer : MessageBuffer {
    BounceBuffer() : MessageBuffer(Kind::receive) {}
    ReceiveBuffers* of = nullptr;
};

/// A buffer that a message leaves from.
struct StagedMessage : MessageBuffer {
    StagedMessage() : MessageBuffer(Kind::staged) {}
};

/// A payload that is sent from where it lies, which is at the caller's.
struct PayloadOut : OpContext {
    PayloadOut() : OpContext(Kind::payload_out) {}
    enum class State : uint8_t { announced, granted, sending };
    uint64_t number = 0;
    State state = State::announced;
    const std::byte* data = nullptr;
    void* context = nullptr;
    uint64_t tag = 0;
    Registered registered;
    StagedMessage* staged = nullptr;  // the header that goes with it, if it was not announced
};

/// A payload that a peer has announced.
struct PayloadIn : OpContext {
    PayloadIn() : OpContext(Kind::payload_in) {}
    enum class State : uint8_t { announced, fetching, ended };
    uint64_t number = 0;
    State state = State::announced;
    uint64_t theirs = 0;  // its number there
    void* context = nullptr;
    Registered registered;

    /// Some libraries' tags have 48 bits.
    uint64_t tag() const { return number & 0xffff'ffff'ffff; }
};

}  // namespace tutti::fabric
