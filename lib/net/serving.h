// Waiting that serves a reactor meanwhile. With manual progress no other thread accepts
// connections: two ranks that connect to each other at once would wait for each other.
#pragma once

#include <poll.h>

#include <atomic>

#include "wait/reactor.h"

namespace tutti::net {

/// While it lives, blocking waits of lib/net and lib/rendezvous on this thread serve the reactor.
class ServeWhileWaiting {
public:
    /// nullptr: nothing to serve.
    explicit ServeWhileWaiting(Reactor* reactor);
    ~ServeWhileWaiting();
    ServeWhileWaiting(const ServeWhileWaiting&) = delete;

private:
    Reactor* outer_;
};

/// While it lives, blocking waits of lib/net, lib/rendezvous and the transports on this thread give
/// up as at their deadline once the flag is set, or that of one outside this one.
class CancelWaitsWhen {
public:
    explicit CancelWaitsWhen(const std::atomic<bool>& flag);
    ~CancelWaitsWhen();
    CancelWaitsWhen(const CancelWaitsWhen&) = delete;

private:
    friend bool wait_cancelled();
    const std::atomic<bool>& flag_;
    const CancelWaitsWhen* const outer_;
};
/// Whether one of this thread's has been set. Every loop that waits looks.
bool wait_cancelled();

/// As ::poll for one descriptor (or none: only time passes), but may return 0 early: after serving,
/// or for a look whether to give up.
int poll_serving(pollfd* waiting, int timeout_ms);

}  // namespace tutti::net
