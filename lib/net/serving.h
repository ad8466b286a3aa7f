// Waits that serve a reactor meanwhile. With manual progress no other thread accepts connections:
// two ranks that connect to each other at once would deadlock.
#pragma once

#include <poll.h>

#include <atomic>
#include <functional>

#include "wait/reactor.h"

namespace tutti::net {

/// While it lives, blocking waits of lib/net and lib/rendezvous on this thread serve the reactor.
class ServeWhileWaiting {
public:
    /// nullptr: no reactor to serve.
    explicit ServeWhileWaiting(Reactor* reactor);
    ~ServeWhileWaiting();
    ServeWhileWaiting(const ServeWhileWaiting&) = delete;

private:
    Reactor* outer_;
};

/// While it lives, blocking waits of lib/net, lib/rendezvous and the transports on this thread end
/// as at their deadline once its condition, or that of an enclosing CancelWaitsWhen, holds. The
/// waits ask for it every 20 ms or more often.
class CancelWaitsWhen {
public:
    using Condition = std::function<bool()>;
    explicit CancelWaitsWhen(Condition condition);
    explicit CancelWaitsWhen(const std::atomic<bool>& flag);
    ~CancelWaitsWhen();
    CancelWaitsWhen(const CancelWaitsWhen&) = delete;

private:
    friend bool wait_cancelled();
    const Condition condition_;
    const CancelWaitsWhen* const outer_;
};
/// Whether a condition of this thread's holds. Every loop that waits checks it.
bool wait_cancelled();

/// As ::poll for one descriptor (nullptr: only sleeps), but may return 0 early: after serving the
/// reactor, or so that the caller checks wait_cancelled().
int poll_serving(pollfd* waiting, int timeout_ms);

}  // namespace tutti::net
