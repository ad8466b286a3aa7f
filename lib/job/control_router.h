// Routes control messages between the ranks of a job, and tells which ranks are gone.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/result.h"
#include "control/control_links.h"
#include "control/loss_table.h"
#include "control/tree_message.h"
#include "job/assembly.h"
#include "job/client_table.h"
#include "job/connecting/detours.h"
#include "job/heartbeat.h"

namespace tutti {

/// Every message that this rank sends or passes on goes directly to its destination if there is a
/// connection, else along the tree, else by a detour. Every loss is told once to the neighbours in
/// the tree, to the next rank and to the communicators.
///
/// The clients' lock guards the losses, so that a communicator that is added hears of each loss
/// exactly once. send() takes no lock of this class: callers hold locks of communicators.
///
/// It does no I/O: its owner carries events in (a message, an accepted or a closed link, a detour
/// that could not be opened), and the links carry messages out.
class ControlRouter {
public:
    struct RouterParts {
        ControlLinks& links;
        Assembly& assembly;
        Detours& detours;
        ClientTable& clients;
        /// Tells the transports that a peer is gone. Called with the clients' lock held.
        std::function<void(Rank)> peer_gone;
        const std::atomic<bool>& leaving;
        Heartbeat& heartbeat;
        /// The heartbeat's next pulse is due at that time.
        std::function<void(int64_t due_ns)> arm_heartbeat;
    };

    ControlRouter(Rank rank, Rank size, RouterParts parts)
        : rank_(rank), size_(size), parts_(std::move(parts)) {}

    /// Sends to any rank of the job. For a detour its record must be known (PeerDirectory), or the
    /// store must answer. Any thread may call this.
    void send(Rank to, const ControlMessage& message);
    /// Beats, and finds the neighbours that are silent. Called on the reactor's thread when the
    /// heartbeat's pulse is due, from the time on at which that thread begins to run. may_begin:
    /// this rank is the root, and every rank has joined and understands beats.
    void pulse(bool may_begin);
    /// Tells a newly added communicator the earlier losses. With the clients' lock held.
    void replay_losses(EndpointClient& client);
    /// The peer's process is gone, or its connection broke: tells every rank. Any thread may call
    /// this.
    void mark_lost(Rank peer, const std::string& cause);
    /// True if no detour to that rank must be opened, because it has ended.
    bool is_gone(Rank rank);
    /// This rank has opened a detour, which takes messages already.
    void link_dialled(Rank peer);
    /// A detour to that rank could not be opened: there is no way to it any more.
    void cut_off(Rank peer, const Error& why);

    // Called by the control tree and its listener, on the reactor's thread.
    void handle_message(Rank from, ByteView bytes);
    /// Another rank has opened this link, which takes messages already.
    void link_accepted(Rank peer, ControlLinks::LinkKind kind);
    void link_closed(Rank peer, ControlLinks::LinkKind kind, const std::string& cause);

    /// Leaving will not wait for that rank: it is lost, or does not answer.
    void stop_waiting_for(Rank rank);
    /// Drops the links to the ranks for which leaving does not wait. True if there are any. Output
    /// that is already queued for them has a moment to go.
    bool drop_links_not_waited_for();

private:
    void handle_control(const TreeMessage& message);
    void handle_returned(const TreeMessage& message);
    void handle_leaving(Rank from);
    void begin_beating();
    void spread_loss(Rank peer, const std::string& cause, Rank except);
    void spread_accusation(Accusation one, const std::string& cause, Rank except);
    bool pass_on(Rank to, ByteView message);
    void pass_losses_on(Rank lost);
    void note_unreachable(Rank peer);

    const Rank rank_, size_;
    const RouterParts parts_;
    // The clients' lock guards the members below.
    LossTable losses_{rank_, size_};
    std::set<Rank> ending_;  // have ended, but a link's last messages may still come
};

}  // namespace tutti
