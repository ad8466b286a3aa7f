// The interface of a message library's port to its transport and channels.
//
// Any thread may enter: EngineEntry (transport/posted) lets one in at a time, and PortLoop drives
// the port.
#pragma once

#include <memory>
#include <span>

#include "fabric/loop.h"
#include "transport/flat/flat_operation.h"

namespace tutti::fabric {

/// A rank, and the addresses of its ports.
struct Contact {
    Rank rank = nobody;
    Address address;
};

/// The engine's interface for flat groups. The engine knows a board from join(), which takes the
/// index of the members' ports, to leave().
class FlatExchange {
public:
    FlatExchange(EngineParts& parts, PortLoop& loop) : parts_(parts), loop_(loop) {}

    Result<> join(SlotBoard& board, std::span<const Contact> contacts, std::size_t port);
    void leave(const SlotBoard& board);
    /// Sends unsent contributions, and polls a few times for the awaited member's contribution, if
    /// no other thread is in. Returns an unread message of an earlier call, which this rank will
    /// never read (a mismatch); nullptr: none.
    const ReceiveQueue::ReceiveSlot* exchange(SlotBoard& board, SlotStream& stream,
                                              const FlatRun& run, std::size_t awaited);
    /// As exchange(), but only checks for such a message.
    const ReceiveQueue::ReceiveSlot* stray(SlotStream& stream, const Tag& now);
    void cancel(SlotStream& stream);

private:
    using Guard = EngineGuard<PortLoop>;
    EngineParts& parts_;
    PortLoop& loop_;
};

/// Each call enters the loop, uses the parts that it needs, and leaves.
class FabricEngine final : public std::enable_shared_from_this<FabricEngine>,
                           private ReceiverFactory {
public:
    using Options = EngineOptions;
    explicit FabricEngine(const Options& options) : parts_(options) {}
    ~FabricEngine();

    Result<> open_port(PortFactory& factory) { return loop_.open_port(factory); }
    const Bytes& address() const { return parts_.port.port().address(); }
    const PortLimits& limits() const { return parts_.port.port().limits(); }
    int wake_fd() const { return parts_.doorbell.fd(); }

    Result<std::unique_ptr<Sender>> open(const ChannelId& id, ByteView port, uint64_t nonce);
    /// That peer's process is known to be dead. May be called while another thread is in and waits
    /// for that peer.
    void mark_failed(Rank peer);
    /// As Transport::add_memory().
    Result<> add_memory(std::byte* data, std::size_t bytes);
    void remove_memory(std::byte* data, std::size_t bytes);
    /// Sends and receives what is possible now; does nothing if another thread is in.
    void progress() { loop_.progress(); }
    /// Makes progress for a rank that may be computing. Called ten times a second, only by the
    /// service thread.
    void tick();
    /// Call when wake_fd() is readable.
    void on_doorbell();

    /// Closing: begin takes the engine for good; step returns true once every peer has received all
    /// messages; end disconnects the peers. The port stays for channels that are still read.
    void begin_close(Deadline deadline);
    bool close_step();
    void end_close(Deadline deadline);

    // For the channels.
    Code health(const Flow& flow) const { return flow.peer.health.load(std::memory_order_acquire); }
    void schedule_send(Flow& flow);
    void arm(bool on);
    void cancel_sends(Flow& flow);
    void cancel_receives(Flow& flow);
    void close_sender(Flow& flow);
    void close_receiver(Flow& flow);
    void reject(Flow& flow, const std::string& cause) { reject(flow.peer, cause); }
    void reject(Peer& peer, const std::string& cause);
    void place_next(Flow& flow);

    // For the flat groups.
    FlatExchange& flat() { return flat_; }

private:
    using Guard = EngineGuard<PortLoop>;
    std::unique_ptr<Receiver> make_receiver(Flow& flow) override;

    EngineParts parts_;
    PortLoop loop_{parts_, *this};
    FlatExchange flat_{parts_, loop_};
};

}  // namespace tutti::fabric
