// Waiting that serves a reactor meanwhile. With manual progress no other thread accepts
// connections: two ranks that connect to each other at once would wait for each other.
#pragma once

#include <poll.h>

#include "net/reactor.h"

namespace tutti::net {

/// While it lives, blocking waits of lib/net and lib/store on this thread serve the reactor.
class ServeWhileWaiting {
public:
    /// nullptr: nothing to serve.
    explicit ServeWhileWaiting(Reactor* reactor);
    ~ServeWhileWaiting();
    ServeWhileWaiting(const ServeWhileWaiting&) = delete;

private:
    Reactor* outer_;
};

/// As ::poll for one descriptor (or none: only time passes), but may return 0 early after serving.
int poll_serving(pollfd* waiting, int timeout_ms);

}  // namespace tutti::net
