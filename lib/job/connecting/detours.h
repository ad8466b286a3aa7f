// Connections around gone ranks of the control tree.
#pragma once

#include <atomic>
#include <mutex>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "config/config.h"
#include "control/control_tree.h"
#include "control/detour_queue.h"
#include "job/records/peer_directory.h"
#include "wait/wakeups.h"

namespace tutti {

/// A message that finds no way along the tree waits here until the thread that serves the reactor
/// has connected to its destination, because callers hold locks of communicators. Any thread may
/// call any function; one at a time calls open(). With the mutex held, only the control tree's
/// queues are called.
class Detours {
public:
    Detours(const Config& config, PeerDirectory& directory, ControlTree& control, Wakeups& wakeups,
            const std::atomic<bool>& leaving)
        : config_(config),
          directory_(directory),
          control_(control),
          wakeups_(wakeups),
          leaving_(leaving) {}

    /// Takes the message if others wait for that rank: they go first.
    bool add_behind_others(Rank to, Bytes& message);
    /// Queues the message and asks for a connection. Drops it if the way to that rank was closed.
    void add(Rank to, Bytes message);
    /// Asks for a connection, to find out whether that rank is still there.
    void request(Rank to);
    /// A rank to which a connection is wanted; nobody if there is none.
    Rank next();
    /// Connects to that rank, and sends its waiting messages. `peer_lost` of that rank: no process
    /// listens there any more.
    Result<> open(Rank to);
    /// Closes the way to that rank, because there is none, and drops its messages.
    void close(Rank to);
    /// Sets one deadline for all detours that are still wanted, as this rank leaves.
    void end_by(Deadline deadline);

private:
    Result<UniqueFd> connect(Rank to, Deadline deadline);

    const Config& config_;
    PeerDirectory& directory_;
    ControlTree& control_;
    Wakeups& wakeups_;
    const std::atomic<bool>& leaving_;
    std::mutex mutex_;  // guards the members below
    DetourQueue queue_;
    Deadline end_;
};

}  // namespace tutti
