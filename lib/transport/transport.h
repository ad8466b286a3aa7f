// A transport makes channels. It owns its connections, shared by every communicator of an endpoint.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
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
    bool mapped = false;  // reserve() gives memory that the peer reads: build there
    bool same_host_only = false;
    bool takes_devices = false;  // of some peers, what lies in a GPU's memory
    uint32_t credits = 0;        // messages under way per channel; ≥ what verify asks
    // Joining replaces latency_us by that of the way to other hosts. max_message_bytes is for hosts
    // that are far apart, usual_message_bytes for others.
    bool over_ip = false;
    std::size_t usual_message_bytes = 0;  // 0: as many as max_message_bytes
};

/// Takes channels that a peer opened towards this rank. Called from the thread that runs the
/// reactor.
class ChannelSink {
public:
    virtual ~ChannelSink() = default;
    virtual void opened(const ChannelId& id, std::unique_ptr<Receiver> receiver) = 0;
    /// The peer's process is gone, or its connection broke; cause is for people. This rank itself,
    /// if it lacks what it needs to go on.
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
    std::string usual_address;     // where nothing is wished for: on the way to the store, or empty
    std::size_t window_bytes = 0;  // TUTTI_WINDOW_BYTES; 0: what hosts next to each other need
    std::string ofi_provider;      // TUTTI_OFI_PROVIDER, empty: choose
    int fabric_ports = 1;          // of transports that are a library's
    bool loopback_only = true;
    int doorbell_fd = -1;  // eventfd: rung by peers in shared memory to wake this process's waiters
    Reactor* reactor = nullptr;       // accepts and news: always served
    Reactor* data_reactor = nullptr;  // what a sleeping waiter polls: doorbell and data sockets
    ChannelSink* sink = nullptr;
    // Counts connections with output that the kernel has not taken; the data reactor has it when it
    // does. May be nullptr.
    std::atomic<int>* unsent = nullptr;
};

class Transport {
public:
    virtual ~Transport() = default;
    virtual std::string_view name() const = 0;
    virtual const Capabilities& capabilities() const = 0;

    /// Starts listening, before the address is published.
    virtual Result<> listen() = 0;
    virtual std::string address() const = 0;

    /// Could this transport reach that peer, as far as the addresses tell?
    virtual bool may_reach(const PeerAddress& peer) const = 0;

    /// The sending half towards a peer; connects when it is the first. Blocks at most until the
    /// deadline. unsupported: this transport does not reach that peer after all, try the next.
    virtual Result<std::unique_ptr<Sender>> open(const ChannelId& id, const PeerAddress& peer,
                                                 Deadline deadline) = 0;

    /// A communicator that is about to close its channels, for good: its number comes never again.
    /// What was sent still arrives; then nothing is kept of it. From any thread.
    virtual void retire(uint32_t comm) { static_cast<void>(comm); }

    /// That peer's process is dead, as others found out: whatever waits for it need not wait
    /// longer. From any thread; does not wait for those that are inside.
    virtual void peer_gone(Rank peer) { static_cast<void>(peer); }

    /// The program's memory that operations will use again and again: what it takes to send from it
    /// and receive into it is done now. Each add has its remove; ranges may overlap. Any thread.
    virtual Result<> add_memory(std::byte* data, std::size_t bytes) {
        static_cast<void>(data), static_cast<void>(bytes);
        return {};
    }
    virtual void remove_memory(std::byte* data, std::size_t bytes) {
        static_cast<void>(data), static_cast<void>(bytes);
    }

    /// Moves what can be moved without blocking. From any thread; skipped if one is in it already.
    virtual void progress() = 0;

    /// Whole collectives that this transport can do at once; nullptr if none.
    virtual IntrinsicProvider* intrinsics() { return nullptr; }

    /// Waits, bounded, until what was sent has left this process; then hangs up.
    virtual void close(Deadline deadline) = 0;
};

}  // namespace tutti
