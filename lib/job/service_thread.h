// An endpoint's service thread, and pump(), which takes its place with manual progress.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/clock.h"
#include "base/result.h"
#include "job/assembly.h"
#include "job/channel_opener.h"
#include "job/client_table.h"
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

}  // namespace tutti
