// Opens connections for callers that cannot wait.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>

#include "job/client_table.h"
#include "job/connecting/connector.h"
#include "job/connecting/detour_dialer.h"
#include "job/connecting/detours.h"
#include "job/control_router.h"
#include "wait/wakeups.h"

namespace tutti {

/// The thread that serves the reactor opens them, one at a time: channels first, then detours. Once
/// this rank leaves, none is begun. Its mutex guards its data, and is taken before that of the
/// detours.
class ChannelOpener {
public:
    ChannelOpener(ClientTable& clients, const Connector& connector, Detours& detours,
                  DetourDialer& dialer, ControlRouter& router, Wakeups& wakeups,
                  const std::atomic<bool>& leaving)
        : clients_(clients),
          connector_(connector),
          detours_(detours),
          dialer_(dialer),
          router_(router),
          wakeups_(wakeups),
          leaving_(leaving) {}

    /// Queues a channel; the communicator is told when it is open. Any thread may call this.
    void add(const ChannelId& id);
    /// Opens all requested connections. Called by the thread that serves the reactor, which goes on
    /// serving it.
    void open_all();
    /// Waits for the end of the current attempt, as this rank leaves.
    void wait_until_idle(int64_t most_ms);

private:
    /// A channel, or else the rank to which a detour is wanted.
    struct OpeningRequest {
        std::optional<ChannelId> channel;
        Rank detour = nobody;
    };
    std::optional<OpeningRequest> begin_next();
    void open(const OpeningRequest& wanted);
    void open_detour(Rank to);

    ClientTable& clients_;
    const Connector& connector_;
    Detours& detours_;
    DetourDialer& dialer_;
    ControlRouter& router_;
    Wakeups& wakeups_;
    const std::atomic<bool>& leaving_;
    std::mutex mutex_;  // guards the members below
    std::condition_variable ended_;
    std::deque<ChannelId> channels_;
    bool opening_ = false;
};

}  // namespace tutti
