// The seam between the fabric engine and a message library: a port moves messages, each a small
// header and a payload, between processes. The engine (engine.h) makes channels of them; a port
// knows no channels, no tags and no credits. docs/how-to/new-transport.md walks through the
// smallest one.
//
// A message comes whole or not at all, and messages may overtake each other. A small one comes with
// its payload. Of a large one the header comes first, and the engine fetches the payload to where
// the operation wants it: no copy, and no memory for a message that no operation waits for. Or the
// payload comes in pieces, which the port puts where the engine said during the first one's event.
//
// Threads: the engine lets one thread at a time into a port. Events come only from within
// progress(), send(), fetch(), release(), disconnect() and flush(). During an event the engine
// makes two calls at most: connect(), for a sender that it did not know, and fetch(), for an
// arrival with at_once. No call blocks unless it says so.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/types.h"
#include "transport/posted/events.h"

namespace tutti::fabric {

/// Headers are exactly this long, and have the sender's Rank here: to a port they say nothing else.
inline constexpr std::size_t header_bytes = 64;
inline constexpr std::size_t sender_offset = 4;

using tutti::Culprit;

/// A message that has arrived. The engine may fetch its payload and keep it until release().
struct Arrival {
    const std::byte* header = nullptr;  // during the event only
    const std::byte* data = nullptr;    // the payload; nullptr: it must be fetched (or is empty)
    std::size_t bytes = 0;              // of the payload
    void* hold = nullptr;  // names it to the port; nullptr: the data is there during the event only
    bool at_once = false;  // it comes in pieces, to where fetch() says during the event, or nowhere
};

class PortEvents {
public:
    virtual ~PortEvents() = default;
    /// True: the engine keeps the arrival, and releases it later. False: it has what it wants.
    virtual bool arrived(const Arrival& arrival) = 0;
    /// The payload of a send() that was pending is the caller's again: it has gone (ok), or never
    /// will (peer_lost).
    virtual void sent(void* context, Code code) = 0;
    /// A fetch() that was pending is done (ok), or never will be (peer_lost); the arrival still
    /// wants its release().
    virtual void fetched(void* context, Code code) = 0;
    /// Nothing more can be sent to that peer; cause is for people. Once a peer.
    virtual void lost(Rank peer, const std::string& cause, Culprit culprit) = 0;
};

/// done: and there will be no event. pending: there will be one. busy: nothing happened, the
/// library has no room; again after progress(). failed: lost() has said why, or is about to.
enum class Progress : uint8_t { done, pending, busy, failed };

struct PortLimits {
    std::size_t eager_bytes = 0;   // payloads up to here come with their header
    std::size_t copied_bytes = 0;  // up to here the caller's memory is free when send() returns
    std::size_t max_message_bytes = 0;
    double latency_us = 0;  // as the library estimates them, 0: it does not say
    double bandwidth_gbs = 0;
    bool sockets = false;         // between hosts all goes through the kernel's streams
    bool sockets_within = false;  // within a host too
    bool takes_devices = false;   // takes_device() may be true
};

/// A port that tells a sleeper when it has something to do. A thread that sleeps beside a port
/// without one is woken by the service thread, which looks ten times a second.
class PortDoorbell {
public:
    /// Becomes readable when progress() is worth a call; -1: it does not after all.
    virtual int wake_fd() const = 0;
    /// Before polling wake_fd(). False: do not sleep, there is something to do.
    virtual bool arm() = 0;
    /// wake_fd() was readable: before the progress() that follows. It is quiet then, until what
    /// arm() waits for.
    virtual void drain() = 0;

protected:
    ~PortDoorbell() = default;
};

/// A port that can register the caller's memory, which is used again and again, in advance.
class PortMemory {
public:
    virtual Result<> add_memory(std::byte* data, std::size_t bytes) = 0;
    virtual void remove_memory(std::byte* data, std::size_t bytes) = 0;

protected:
    ~PortMemory() = default;
};

/// A port whose messages that cross on one connection may hold each other up.
class SecondPath {
public:
    /// As Port::send(), of a message that is copied at once and that one of the peer's crosses.
    /// way: 0 or 1, the peer's is the other one, and the next call's.
    virtual Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, unsigned way) = 0;

protected:
    ~SecondPath() = default;
};

/// A port that can be told of another place while a send or a fetch is pending. With one, an
/// operation that fails gets its memory back at once; otherwise it waits for the library.
class PayloadMover {
public:
    /// The payload of a send() or fetch() that is pending lies at `where` from now on, where the
    /// same bytes are already: the caller's memory is the caller's again. False: the library
    /// cannot be told of this one, and nothing has changed.
    virtual bool move(void* context, std::byte* where) = 0;

protected:
    ~PayloadMover() = default;
};

/// A port of which payloads may lie in a GPU's memory.
class PortDevices {
public:
    /// Whether those to and from that peer, which is connected, may.
    virtual bool takes_device(Rank peer) const = 0;
    /// As Port::send(), from such memory, however short: the payload comes to be fetched.
    virtual Progress send_from_device(Rank peer, const std::byte* header, const std::byte* data,
                                      std::size_t bytes, void* context) = 0;
    /// As Port::fetch(), to such memory; not of an arrival that comes in pieces.
    virtual Progress fetch_to_device(void* hold, std::byte* where, std::size_t bytes,
                                     void* context) = 0;

protected:
    ~PortDevices() = default;
};

class Port {
public:
    virtual ~Port() = default;

    virtual const PortLimits& limits() const = 0;
    /// Peers hand these bytes to their connect(). Their content is the library's own.
    virtual const Bytes& address() const = 0;
    /// Makes peer's port known; does not wait for it.
    virtual Result<> connect(Rank peer, ByteView address) = 0;
    /// Drops everything that is under way to and from that peer, at once; what was pending gets its
    /// events before this returns. No lost() follows.
    virtual void disconnect(Rank peer) = 0;

    /// Sends header and payload. The header is copied at once, and so is a payload of up to
    /// copied_bytes; a larger one stays where it is until the send is done. context: names the send
    /// in its event; nullptr: the engine does nothing on that event.
    virtual Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context) = 0;
    /// Gets the payload of an arrival that came without; bytes is all of it.
    virtual Progress fetch(void* hold, std::byte* where, std::size_t bytes, void* context) = 0;

    /// Done with a kept arrival; one that was never fetched is dropped, and its sender told.
    virtual void release(void* hold) = 0;

    /// Receives, and completes sends and fetches, as far as it goes now; true if anything happened.
    virtual bool progress() = 0;

    /// Waits, bounded, until what was sent has left.
    virtual void flush(Deadline deadline) = 0;

    // Optional features; nullptr: the library has none. The same answer each time.
    virtual PortDoorbell* doorbell() { return nullptr; }
    virtual PortMemory* memory() { return nullptr; }
    virtual SecondPath* second_path() { return nullptr; }
    virtual PayloadMover* payload_mover() { return nullptr; }
    virtual PortDevices* devices() { return nullptr; }
};

/// Opens ports of one library, all alike.
class PortFactory {
public:
    virtual ~PortFactory() = default;
    /// The transport's name, and the library's version as peers must have it too: "ucx", "1.13".
    virtual std::string_view name() const = 0;
    virtual std::string version() const = 0;
    /// Names the library's ways of moving messages, for logs: "tcp/lo, posix", "tcp;ofi_rxm".
    virtual std::string path() const = 0;
    /// The port calls the events, which outlive it.
    virtual Result<std::unique_ptr<Port>> open(PortEvents& events) = 0;
};

}  // namespace tutti::fabric
