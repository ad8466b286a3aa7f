// A timer of a reactor.
#pragma once

#include <cstdint>
#include <functional>

#include "base/fd.h"
#include "base/result.h"
#include "wait/reactor.h"

namespace tutti {

/// Calls its handler on the thread that polls the reactor.
class ReactorTimer {
public:
    ReactorTimer(Reactor& reactor, std::function<void()> handler)
        : reactor_(reactor), handler_(std::move(handler)) {}
    ~ReactorTimer();
    ReactorTimer(const ReactorTimer&) = delete;

    Result<> open();
    /// The handler is called at that time (now_ns). Ignored unless the timer is open. Any thread
    /// may call this.
    void arm(int64_t due_ns) const;

private:
    Reactor& reactor_;
    const std::function<void()> handler_;
    UniqueFd timer_;
};

}  // namespace tutti
