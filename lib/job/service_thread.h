// An endpoint's service thread, and pump(), which takes its place with manual progress; and a
// thread that beats while the service thread is busy.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"
#include "base/result.h"
#include "control/control_links.h"
#include "job/assembly.h"
#include "job/channel_opener.h"
#include "job/client_table.h"
#include "job/heartbeat.h"
#include "os/thread.h"
#include "wait/wakeups.h"

namespace tutti {

/// Serves the control reactor (the event loop of the control connections), opens requested
/// connections, and drives the operations for which no thread of the program waits. With manual
/// progress (the setting `progress`) it is never started, and waiting threads of the
/// program call pump().
class ServiceThread {
public:
    ServiceThread(Wakeups& wakeups, ClientTable& clients, ChannelOpener& opener,
                  const Assembly& assembly)
        : wakeups_(wakeups), clients_(clients), opener_(opener), assembly_(assembly) {}

    Result<> start();
    /// With manual progress: polls the control reactor once and opens requested connections.
    /// Otherwise it does nothing.
    void pump();
    /// Waits until the thread has ended.
    void stop();
    /// Waits until the thread has ended, until the deadline and at most one second. False: it has
    /// not, because it runs a completion callback of the program.
    bool stop(Deadline deadline);

private:
    void serve();
    void ask_to_stop();

    Wakeups& wakeups_;
    ClientTable& clients_;
    ChannelOpener& opener_;
    const Assembly& assembly_;
    std::atomic<bool> stop_{false};
    std::mutex mutex_;  // guards serving_
    std::condition_variable ended_;
    bool serving_ = false;  // the thread has not ended
    Thread thread_;
};

/// Beats while the service thread does not: that may be inside a completion callback of the
/// program, or wait for Python's lock, for longer than the heartbeat. The rank is alive then.
class BeatThread {
public:
    BeatThread(Heartbeat& heartbeat, ControlLinks& links) : heartbeat_(heartbeat), links_(links) {}

    Result<> start();
    /// Waits until the thread has ended, which is at once.
    void stop();

private:
    void run();

    Heartbeat& heartbeat_;
    ControlLinks& links_;
    std::mutex mutex_;  // guards stop_
    std::condition_variable stopped_;
    bool stop_ = false;
    Thread thread_;
};

}  // namespace tutti
