// The interface between the fabric engine and a message library: a port moves messages, each a
// small header and a payload, between processes. The engine (engine.h) makes channels of them; a
// port knows no channels, no tags and no credits. docs/how-to/new-transport.md walks through the
// smallest port.
//
// A message arrives whole or not at all, and messages may overtake each other. A small message
// arrives with its payload (MPI's eager protocol). The header of a large one arrives first, and the
// engine fetches the payload into the operation's memory (the rendezvous protocol): without a copy,
// and without memory for a message that no operation waits for. Or the payload arrives in
// pieces, and the engine must say during the first piece's event where the port writes them.
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

/// Every header is this long, and has the sender's Rank at this offset. A port interprets nothing
/// else of it.
inline constexpr std::size_t header_bytes = 64;
inline constexpr std::size_t sender_offset = 4;

using tutti::Culprit;

/// A message that has arrived. The engine may fetch its payload and keep it until release().
struct Arrival {
    const std::byte* header = nullptr;  // valid during the event only
    const std::byte* data = nullptr;    // the payload; nullptr: it must be fetched (or is empty)
    std::size_t bytes = 0;              // of the payload
    void* hold = nullptr;  // the port's handle; nullptr: the data is valid during the event only
    bool at_once = false;  // the payload arrives in pieces: the engine calls fetch() during this
                           // event, or the port drops the payload
};

/// The port's calls to the engine.
class PortEvents {
public:
    virtual ~PortEvents() = default;
    /// True: the engine keeps the arrival, and releases it later. False: the engine is done with
    /// it.
    virtual bool arrived(const Arrival& arrival) = 0;
    /// A pending send() has ended: its payload is the caller's again. It was sent (ok), or never
    /// will be (peer_lost).
    virtual void sent(void* context, Code code) = 0;
    /// A pending fetch() has ended: done (ok), or it never will be (peer_lost). The engine must
    /// still release() the arrival.
    virtual void fetched(void* context, Code code) = 0;
    /// Nothing more can be sent to that peer; cause is for error messages. Once per peer.
    virtual void lost(Rank peer, const std::string& cause, Culprit culprit) = 0;
};

/// done: no event follows. pending: an event follows. busy: nothing happened, because the library
/// has no room; try again after progress(). failed: lost() has given the cause, or is about to.
enum class Progress : uint8_t { done, pending, busy, failed };

struct PortLimits {
    std::size_t eager_bytes = 0;   // payloads up to this size arrive with their header
    std::size_t copied_bytes = 0;  // up to this size the caller's memory is free when send()
                                   // returns
    std::size_t max_message_bytes = 0;
    double latency_us = 0;  // the library's estimate, 0: it gives none
    double bandwidth_gbs = 0;
    bool sockets = false;         // between hosts all data goes through the kernel's tcp sockets
    bool sockets_within = false;  // within a host too
    bool takes_devices = false;   // takes_device() may be true
};

/// A port that can wake a sleeping thread when it has something to do. If a port cannot, the
/// service thread, which polls it ten times a second, wakes the sleeper.
class PortDoorbell {
public:
    /// Readable when progress() is worth a call; -1: the port has none after all.
    virtual int wake_fd() const = 0;
    /// Call before polling wake_fd(). False: do not sleep, there is something to do.
    virtual bool arm() = 0;
    /// Call when wake_fd() is readable, before progress(). It stays unreadable until the event that
    /// the next arm() waits for.
    virtual void drain() = 0;

protected:
    ~PortDoorbell() = default;
};

/// A port that can register the caller's memory in advance, for repeated use.
class PortMemory {
public:
    virtual Result<> add_memory(std::byte* data, std::size_t bytes) = 0;
    virtual void remove_memory(std::byte* data, std::size_t bytes) = 0;

protected:
    ~PortMemory() = default;
};

/// A port with two connections to each peer. On one connection, two messages that cross (each rank
/// sends to the other at the same time) may delay each other.
class SecondPath {
public:
    /// As Port::send(), for a message that is copied at once and that crosses one of the peer's.
    /// way: the connection, 0 or 1. The two ranks pass different ones, and each rank alternates.
    virtual Progress send_crossing(Rank peer, const std::byte* header, const std::byte* data,
                                   std::size_t bytes, unsigned way) = 0;

protected:
    ~SecondPath() = default;
};

/// A port that accepts another address for the payload of a pending send or fetch. With it, an
/// operation that fails gets its memory back at once; otherwise the operation waits for the
/// library.
class PayloadMover {
public:
    /// From now on the payload of a pending send() or fetch() is at `where`, which holds the same
    /// bytes already; the caller's memory is the caller's again. False: the library cannot move
    /// this payload, and nothing has changed.
    virtual bool move(void* context, std::byte* where) = 0;

protected:
    ~PayloadMover() = default;
};

/// A port whose payloads may be in a GPU's memory.
class PortDevices {
public:
    /// Whether payloads to and from that connected peer may be in a GPU's memory.
    virtual bool takes_device(Rank peer) const = 0;
    /// As Port::send(), from a GPU's memory. However short the payload is, the receiver fetches it.
    virtual Progress send_from_device(Rank peer, const std::byte* header, const std::byte* data,
                                      std::size_t bytes, void* context) = 0;
    /// As Port::fetch(), into a GPU's memory; not for an arrival with at_once.
    virtual Progress fetch_to_device(void* hold, std::byte* where, std::size_t bytes,
                                     void* context) = 0;

protected:
    ~PortDevices() = default;
};

/// The engine's calls to the port.
class Port {
public:
    virtual ~Port() = default;

    virtual const PortLimits& limits() const = 0;
    /// Peers pass these bytes to their connect(). The format is the library's own.
    virtual const Bytes& address() const = 0;
    /// Makes the peer's port known; does not wait for the peer.
    virtual Result<> connect(Rank peer, ByteView address) = 0;
    /// Drops all messages to and from that peer at once; pending operations get their events before
    /// this returns. No lost() follows.
    virtual void disconnect(Rank peer) = 0;

    /// Sends header and payload. The header is copied at once, and so is a payload of up to
    /// copied_bytes; a larger one must not change until the send is done. context: names the send
    /// in its event; nullptr: the engine ignores that event.
    virtual Progress send(Rank peer, const std::byte* header, const std::byte* data,
                          std::size_t bytes, void* context) = 0;
    /// Fetches the payload of an arrival without data; bytes is all of it.
    virtual Progress fetch(void* hold, std::byte* where, std::size_t bytes, void* context) = 0;

    /// Ends the use of a kept arrival. If it was never fetched, the port drops it and tells the
    /// sender.
    virtual void release(void* hold) = 0;

    /// Receives, and completes sends and fetches, without waiting; true if anything happened.
    virtual bool progress() = 0;

    /// Waits until all messages have left this process, or the deadline.
    virtual void flush(Deadline deadline) = 0;

    // Optional features; nullptr: the library has none. The same answer each time.
    virtual PortDoorbell* doorbell() { return nullptr; }
    virtual PortMemory* memory() { return nullptr; }
    virtual SecondPath* second_path() { return nullptr; }
    virtual PayloadMover* payload_mover() { return nullptr; }
    virtual PortDevices* devices() { return nullptr; }
};

/// Opens equal ports of one library.
class PortFactory {
public:
    virtual ~PortFactory() = default;
    /// The transport's name, and the library's version, which peers must share: "ucx", "1.13".
    virtual std::string_view name() const = 0;
    virtual std::string version() const = 0;
    /// Names the library's transports, for logs: "tcp/lo, posix", "tcp;ofi_rxm".
    virtual std::string path() const = 0;
    /// The port calls the events, which must outlive it.
    virtual Result<std::unique_ptr<Port>> open(PortEvents& events) = 0;
};

}  // namespace tutti::fabric
