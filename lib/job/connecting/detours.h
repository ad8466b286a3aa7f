// Connections past ranks of the control tree that are gone.
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

/// A message that finds no way along the tree waits here until whoever serves the reactor has
/// connected to the rank that it is for: callers hold locks of communicators. Any thread may call
/// anything; open() is for one at a time. Its mutex guards its data; only the control tree's queues
/// are called with it.
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
    /// The message is dropped if there was no way to that rank.
    void add(Rank to, Bytes message);
    /// Wants a connection, to find out whether that rank is still there.
    void request(Rank to);
    /// A rank to connect to, nobody if there is none.
    Rank next();
    /// Connects to that rank, and sends what has waited. peer_lost of that rank: nothing listens
    /// there any more.
    Result<> open(Rank to);
    /// There is no way to that rank.
    void close(Rank to);
    /// All that are still wanted have so long together, as this rank leaves.
    void end_by(Deadline deadline);

private:
    Result<UniqueFd> connect(Rank to, Deadline deadline);

    const Config& config_;
    PeerDirectory& directory_;
    ControlTree& control_;
    Wakeups& wakeups_;
    const std::atomic<bool>& leaving_;
    std::mutex mutex_;  // guards what follows
    DetourQueue queue_;
    Deadline end_;
};

}  // namespace tutti
