// Runs a port: the parts of its engine, and the turns in which threads drive it.
#pragma once

#include <functional>

#include "fabric/boards.h"
#include "fabric/incoming.h"
#include "fabric/outgoing.h"
#include "transport/posted/engine_entry.h"

namespace tutti::fabric {

struct EngineOptions {
    Rank rank = 0;
    Rank size = 1;
    uint64_t nonce = 0;
    std::size_t max_message_bytes = 0;
    int doorbell_fd = -1;
    const Retired* retired = nullptr;
    ChannelEvents* events = nullptr;
    PeerLimits limits = {};
    int64_t patience_ms = 5000;  // to wait for the library to give back an operation's memory
};

/// Wired to each other. The entry lets one thread at a time use the other parts.
struct EngineParts {
    explicit EngineParts(const EngineOptions& in_options);

    const EngineOptions options;
    const SleeperWaker waker;
    FailedPeers failed;
    EngineEntry<Flow> entry;
    EnginePort port;
    DescriptorMarks marks;
    ArmedDoorbell doorbell;
    PeerTable peers;
    FlowTable<Flow> flows;  // destroyed first: their cells are counted at their peers
    Incoming incoming;
    Outgoing outgoing;
    FlatBoards boards;
};

/// Makes the receiver of a channel that a peer opened. Called without the owner flag.
class ReceiverFactory {
public:
    virtual std::unique_ptr<Receiver> make_receiver(Flow& flow) = 0;

protected:
    ~ReceiverFactory() = default;
};

/// The port's events only record what happened. The thread that is in handles the consequences
/// before it leaves, when it is no longer inside a call of the library.
class PortLoop final : private PortEvents {
public:
    PortLoop(EngineParts& parts, ReceiverFactory& receivers)
        : parts_(parts), receivers_(receivers) {}
    Result<> open_port(PortFactory& factory);

    bool enter() { return parts_.entry.enter(); }
    void exit() { parts_.entry.exit(*this); }
    /// Sends and receives what is possible now; does nothing if another thread is in.
    void progress() {
        if (parts_.entry.taken() || !parts_.entry.try_enter()) return;
        turn();
        exit();
    }

    // For the owner.
    void turn() {
        poll();
        tidy();
    }
    void poll() {
        parts_.port.begin_poll();
        if (parts_.port.port().progress()) parts_.doorbell.moved();
    }
    /// Handles all events that polls have recorded.
    void tidy() {
        if (parts_.failed.any()) [[unlikely]]
            drop_failed();
        follow_up();
        flush();
    }
    void follow_up() {
        const bool nothing = !parts_.port.any_losses() && !parts_.peers.any_leaving() &&
                             !parts_.incoming.any_to_fetch();
        if (!nothing) follow_up_events();
    }
    void flush();
    void mark_lost(Peer& peer, const std::string& cause, Culprit culprit);
    /// Waits until pending() is false, or the peer is lost; after the patience has passed it
    /// reports the peer as lost. Lets other threads in meanwhile. False: the engine was closed, and
    /// this thread is no longer the owner.
    bool wait_for(Peer& peer, const std::function<bool()>& pending, const char* failure);

private:
    friend class EngineEntry<Flow>;
    void finish_turn();
    bool has_more() { return parts_.entry.ready().added() || parts_.boards.any_added(); }
    std::unique_ptr<Receiver> make_receiver(Flow& flow) { return receivers_.make_receiver(flow); }
    void follow_up_events();
    void arm_port();
    void drop_failed();

    bool arrived(const Arrival& arrival) override;
    void sent(void* context, Code code) override;
    void fetched(void* context, Code code) override;
    void lost(Rank peer, const std::string& cause, Culprit culprit) override;
    bool belongs_here(const Header& header, const Arrival& arrival);
    void handle_control(Peer& peer, Flow* flow, const Header& header);
    bool handle_data(Peer& peer, Flow* flow, const Header& header, const Arrival& arrival);
    bool handle_late(Peer& peer, const Header& header);
    Flow* find_or_add(Peer& peer, const Header& header);
    void announce(Flow& flow);

    EngineParts& parts_;
    ReceiverFactory& receivers_;
    bool strangers_ = false;  // a dropped message was logged once
};

}  // namespace tutti::fabric
