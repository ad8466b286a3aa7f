// The interface between a message port and its library: a messenger makes the library's calls.
#pragma once

#include <concepts>
#include <span>

#include "fabric/messages/operations.h"

namespace tutti::fabric {

struct MessengerLimits {
    PortLimits port;
    std::size_t injected_bytes = 0;  // the library injects messages of up to this size
    bool two_pieces = false;         // a message may consist of two pieces of memory
    bool second = false;             // there is a second endpoint
    std::size_t send_queue = 0;      // an endpoint's limit of operations at once
    std::size_t receive_queue = 0;
};

/// The end of an operation.
struct OpCompletion {
    OpContext* operation;
    std::size_t bytes;  // received
    int error;          // the library's code; 0: success
};

/// A library that sends and receives plain messages and tagged ones. A port calls these members
/// directly, not through a table. send(), send_in_place(), post(), send_payload() and
/// receive_payload() return 0 if the library has accepted the operation; read() returns its
/// completion later. Any other number is the library's code, and nothing has happened.
template <typename L>
concept MessengerContract = requires(L messenger, MessagePeer& peer, StagedMessage& staged,
                                     BounceBuffer& bounce, PayloadOut& out, PayloadIn& in,
                                     std::byte* where, ByteView address, ByteWriter& writer,
                                     ByteReader& reader, std::span<OpCompletion> completions,
                                     int code) {
    { messenger.open() } -> std::same_as<Result<>>;
    { messenger.limits() } -> std::convertible_to<const MessengerLimits&>;
    { messenger.library_memory() } -> std::same_as<LibraryMemory&>;

    // publish() writes the part of the port's address that is the library's own. parse() reads a
    // peer's, and connect() sets the peer's address from it.
    messenger.publish(writer);
    { messenger.connect(peer, *messenger.parse(Rank{}, reader)) } -> std::same_as<Result<>>;
    // An announcement carries address(). take_address() sets the peer's address from it, if the
    // peer has none.
    { messenger.address() } -> std::convertible_to<ByteView>;
    { messenger.take_address(peer, address) } -> std::same_as<Result<>>;
    // The port calls this once per peer, after a first message to it was sent.
    messenger.note_reached(peer);

    // send() may clear staged.second: then the message goes through the first endpoint.
    { messenger.send(staged) } -> std::same_as<int>;
    // inject() copies the message, and no completion follows.
    { messenger.inject(staged) } -> std::same_as<int>;
    // send_in_place() sends out.staged and the payload as one message.
    { messenger.send_in_place(out) } -> std::same_as<int>;
    { messenger.post(bounce) } -> std::same_as<int>;

    // Payloads have the tags out.tag and in.tag().
    { messenger.send_payload(out) } -> std::same_as<int>;
    { messenger.receive_payload(in, where) } -> std::same_as<int>;
    // The receive completes soon, whole or with an error.
    messenger.cancel(in);

    // read() returns how many completions it has written.
    { messenger.read(completions) } -> std::same_as<std::size_t>;
    // After close(), the library touches no memory, and read() is not called. After silence(),
    // wake_fd() is never readable.
    messenger.close();
    messenger.silence();

    // is_full(): the library has no room now. is_own(): this process lacks a resource, or made an
    // error.
    { messenger.is_full(code) } -> std::same_as<bool>;
    { messenger.is_own(code) } -> std::same_as<bool>;
    // For error messages: "libfabric (tcp)", and "libfabric (tcp): sending 8 bytes: …".
    { messenger.name() } -> std::convertible_to<std::string>;
    { messenger.failure("sending", std::size_t{}, code) } -> std::same_as<std::string>;

    // As PortDoorbell's functions.
    { messenger.wake_fd() } -> std::same_as<int>;
    { messenger.arm() } -> std::same_as<bool>;
    messenger.drain();
};

}  // namespace tutti::fabric
