// A transport makes channels. It owns its connections, shared by every communicator of an endpoint.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/link_attributes.h"
#include "base/result.h"
#include "transport/channel.h"
#include "transport/intrinsic.h"

namespace tutti {

class Reactor;

/// A transport's abilities and costs, for selection.
struct Capabilities : LinkAttributes {
    bool mapped = false;  // reserve() returns memory that the peer reads: build messages there
    bool same_host_only = false;
    bool takes_devices = false;  // for some peers, messages may be in a GPU's memory
    uint32_t credits = 0;        // messages in flight per channel; ≥ the number that verify asks
                                 // for
    // Joining replaces latency_us by that of the way to other hosts. max_message_bytes is for hosts
    // that are far apart, usual_message_bytes for others.
    bool over_ip = false;
    std::size_t usual_message_bytes = 0;  // 0: equal to max_message_bytes
};

/// Receives the channels that a peer opened towards this rank. The thread that runs the reactor
/// calls it.
class ChannelSink {
public:
    virtual ~ChannelSink() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    /// The peer's process is gone, or its connection broke; cause is for error messages. peer is
    /// this rank itself if it lacks a resource to go on. Any thread may call this.
    virtual void peer_lost(Rank peer, const std::string& cause) = 0;
};

/// An endpoint's settings and services for its transports. All references outlive the transport.
struct TransportContext {
    Rank rank = 0;
    Rank size = 1;
    std::string job;     // names this job among others on the host
    std::string secret;  // may be empty: no authentication beyond the job's name
    std::string host_id;
    std::string iface;             // TUTTI_IFACE: interface name or address, empty: choose
    std::string usual_address;     // used without TUTTI_IFACE: the local address towards the store,
                                   // or empty
    std::size_t window_bytes = 0;  // TUTTI_WINDOW_BYTES; 0: enough for hosts next to each other
    std::string ofi_provider;      // TUTTI_OFI_PROVIDER, empty: choose
    int fabric_ports = 1;          // of transports over a message library
    bool loopback_only = true;
    bool starts_threads = true;  // false: manual progress, no thread of the library's own
    int doorbell_fd = -1;  // eventfd: peers in shared memory ring it to wake this process's waiters
    Reactor* reactor = nullptr;       // for accepts and news; a thread always serves it
    Reactor* data_reactor = nullptr;  // polled by a sleeping waiter: doorbell and data sockets
    ChannelSink* sink = nullptr;
    // Counts connections with output that the kernel has not taken; while it is above 0, the data
    // reactor polls them for room. May be nullptr.
    std::atomic<int>* unsent = nullptr;
};

class Transport {
public:
    virtual ~Transport() = default;
    virtual std::string_view name() const = 0;
    virtual const Capabilities& capabilities() const = 0;

    /// Starts listening; call it before the address is published.
    virtual Result<> listen() = 0;
    virtual std::string address() const = 0;

    /// Whether this transport could reach that peer, judging by the addresses.
    virtual bool may_reach(const PeerAddress& peer) const = 0;

    /// The addresses of the job's other ranks, all of which are there: called once, unless they do
    /// not know each other.
    virtual void add_peers(std::span<const PeerAddress> peers) { static_cast<void>(peers); }

    /// Opens the sending half towards a peer, and connects if it is the first. Blocks at most until
    /// the deadline. unsupported: this transport does not reach that peer after all, try the next.
    virtual Result<std::unique_ptr<Sender>> open(const ChannelId& id, const PeerAddress& peer,
                                                 Deadline deadline) = 0;

    /// Call before a communicator closes its channels for good: its number is never used again.
    /// Messages already sent still arrive; then the transport deletes the communicator's state.
    /// From any thread.
    virtual void retire(uint32_t comm) { static_cast<void>(comm); }

    /// Other ranks found that peer's process dead: threads that wait for it need not wait longer.
    /// From any thread; does not wait for threads inside the transport.
    virtual void peer_gone(Rank peer) { static_cast<void>(peer); }

    /// True if this host's kernel has reported the end of that peer's process, and everything that
    /// it had sent over this transport is here. Any thread.
    virtual bool has_ended(Rank peer) const { return static_cast<void>(peer), false; }

    /// Prepares memory that the program's operations will use again and again for sending and
    /// receiving. Each add has its remove; ranges may overlap. Any thread.
    virtual Result<> add_memory(std::byte* data, std::size_t bytes) {
        static_cast<void>(data), static_cast<void>(bytes);
        return {};
    }
    virtual void remove_memory(std::byte* data, std::size_t bytes) {
        static_cast<void>(data), static_cast<void>(bytes);
    }

    /// Moves data as far as possible without blocking. From any thread; returns at once if another
    /// thread is inside.
    virtual void progress() = 0;

    /// Whole collectives that this transport can do at once; nullptr if none.
    virtual IntrinsicProvider* intrinsics() { return nullptr; }

    /// Waits until all messages have left this process, or the deadline; then closes the
    /// connections.
    virtual void close(Deadline deadline) = 0;
};

}  // namespace tutti
