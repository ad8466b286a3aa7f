// What a port has under way. libfabric gets the address of an operation with each call and gives it
// back with the completion.
#pragma once

#include "transports/ofi/memory.h"
#include "transports/ofi/wire.h"

namespace tutti::ofi {

struct OfiPeer {
    Rank rank = nobody;
    uint64_t port = 0;  // its number
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    fi_addr_t second = FI_ADDR_NOTAVAIL;  // its second endpoint's
    bool connected = false;               // by the engine; otherwise known from what it sent
    bool reached = false;                 // something that was sent has left
    bool gone = false;                    // lost or disconnected
    int64_t refused_since_ns = 0;         // libfabric takes nothing for it, though idle; 0: not so
    std::size_t staged = 0;               // buffers of ours
    std::size_t leaving = 0;              // sends that libfabric has not finished
};

struct OpContext {
    enum class Kind : uint8_t { receive, staged, payload_out, payload_in };
    explicit OpContext(Kind in_kind) : kind(in_kind) {}

    fi_context2 library{};  // libfabric's own, and first: it takes the whole for that
    Kind kind;
};

class ReceiveBuffers;

/// A buffer that a message comes in.
struct BounceBuffer : OpContext {
    BounceBuffer() : OpContext(Kind::receive) {}
    ReceiveBuffers* of = nullptr;
    std::byte* data = nullptr;
    void* descriptor = nullptr;
};

/// A buffer that a message leaves from.
struct Staged : OpContext {
    Staged() : OpContext(Kind::staged) {}
    bool second = false;  // by the second endpoints
    std::byte* data = nullptr;
    void* descriptor = nullptr;
    std::size_t bytes = 0;
    OfiPeer* peer = nullptr;
};

/// A payload that is sent from where it lies, which is at the caller's.
struct PayloadOut : OpContext {
    PayloadOut() : OpContext(Kind::payload_out) {}
    enum class State : uint8_t { announced, granted, sending };
    uint64_t number = 0;
    State state = State::announced;
    OfiPeer* peer = nullptr;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    void* context = nullptr;
    uint64_t tag = 0;
    Registered registered;
    Staged* staged = nullptr;  // the header that goes with it, if it was not announced
};

/// A payload that a peer has announced.
struct PayloadIn : OpContext {
    PayloadIn() : OpContext(Kind::payload_in) {}
    enum class State : uint8_t { announced, fetching, ended };
    uint64_t number = 0;
    State state = State::announced;
    OfiPeer* peer = nullptr;
    uint64_t theirs = 0;  // its number there
    std::size_t bytes = 0;
    void* context = nullptr;
    Registered registered;
};

/// Tags have 48 bits with some providers.
inline uint64_t payload_tag(const PayloadIn& in) {
    return in.number & 0xffff'ffff'ffff;
}

/// How one of them ended.
struct CqEntry {
    OpContext* operation = nullptr;
    std::size_t bytes = 0;
    int error = 0;  // FI_E…
};

}  // namespace tutti::ofi
