// Routes control messages between the ranks of a job, and tells which ranks are gone.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_tree.h"
#include "control/loss_table.h"
#include "control/tree_message.h"
#include "job/assembly.h"
#include "job/client_table.h"
#include "job/connecting/detours.h"
#include "job/connecting/transport_set.h"
#include "net/acceptor.h"

namespace tutti {

/// Every message that this rank sends or passes on goes directly to its destination if there is a
/// connection, else along the tree, else by a detour. Every loss is told once to the neighbours in
/// the tree, to the next rank and to the communicators.
///
/// The clients' lock guards the losses, so that a communicator that is added hears of each loss
/// exactly once. send() takes no lock of this class: callers hold locks of communicators.
class ControlRouter {
public:
    ControlRouter(const Config& config, ControlTree& control, Assembly& assembly, Detours& detours,
                  ClientTable& clients, const TransportSet& transports,
                  const std::atomic<bool>& leaving)
        : config_(config),
          control_(control),
          assembly_(assembly),
          detours_(detours),
          clients_(clients),
          transports_(transports),
          leaving_(leaving) {}

    /// Accepts connections of other ranks on that host's address, which this returns with its port.
    Result<std::string> listen(const std::string& host, Reactor& reactor);
    void stop_listening() { acceptor_.reset(); }

    /// Sends to any rank of the job. For a detour its record must be known (PeerDirectory), or the
    /// store must answer. Any thread may call this.
    void send(Rank to, const ControlMessage& message);
    /// Tells a newly added communicator the earlier losses. With the clients' lock held.
    void replay_losses(EndpointClient& client);
    /// The peer's process is gone, or its connection broke: tells every rank but `except`. Any
    /// thread may call this.
    void mark_lost(Rank peer, const std::string& cause, Rank except = nobody);
    /// Opens a detour; if that fails, notes that there is no way to that rank. It blocks.
    void open_detour(Rank to);

    // Called by the control tree, on the reactor's thread.
    void handle_message(Rank from, ByteView bytes);
    void link_closed(Rank peer, ControlTree::LinkKind kind, const std::string& cause);

    /// Leaving will not wait for that rank: it is lost, or does not answer.
    void stop_waiting_for(Rank rank);
    /// Drops the links to the ranks for which leaving does not wait. True if there are any. Output
    /// that is already queued for them has a moment to go.
    bool drop_links_not_waited_for();

private:
    bool in_job(Rank rank) const { return rank >= 0 && rank < config_.size; }
    void accept(UniqueFd fd, ByteView hello);
    void handle_control(const TreeMessage& message);
    void handle_returned(const TreeMessage& message);
    void handle_leaving(Rank from);
    bool pass_on(Rank to, ByteView message);
    void pass_losses_on(Rank lost);
    void cut_off(Rank peer, const Error& why);

    const Config& config_;
    ControlTree& control_;
    Assembly& assembly_;
    Detours& detours_;
    ClientTable& clients_;
    const TransportSet& transports_;
    const std::atomic<bool>& leaving_;
    std::unique_ptr<net::Acceptor> acceptor_;
    LossTable losses_{config_.rank, config_.size};  // the clients' lock guards it
};

}  // namespace tutti
