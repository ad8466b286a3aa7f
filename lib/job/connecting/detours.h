// The detours that are wanted around gone ranks of the control tree, and the messages that wait for
// them.
#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include "control/control_links.h"
#include "control/detour_queue.h"

namespace tutti {

/// A message that finds no way along the tree waits here until the thread that serves the reactor
/// has connected to its destination (DetourDialer), because callers hold locks of communicators.
/// Any thread may call any function. With the mutex held, only the control tree's queues are
/// called.
class Detours {
public:
    /// wake: called after a detour was asked for, without the mutex; it makes that thread look.
    explicit Detours(std::function<void()> wake) : wake_(std::move(wake)) {}

    /// Takes the message if others wait for that rank: they go first.
    bool add_behind_others(Rank to, Bytes& message);
    /// Queues the message and asks for a connection. Drops it if the way to that rank was closed.
    void add(Rank to, Bytes message);
    /// Asks for a connection, to find out whether that rank is still there.
    void request(Rank to);
    /// A rank to which a connection is wanted; nobody if there is none.
    Rank next();
    /// That rank is connected now: sends it its waiting messages, and asks for nothing more.
    void opened(Rank to, ControlLinks& links);
    /// Closes the way to that rank, because there is none, and drops its messages.
    void close(Rank to);

private:
    const std::function<void()> wake_;
    std::mutex mutex_;  // guards the next member
    DetourQueue queue_;
};

}  // namespace tutti
