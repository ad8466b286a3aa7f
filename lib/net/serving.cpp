#include "net/serving.h"

#include <algorithm>
#include <utility>

namespace tutti::net {
namespace {

thread_local Reactor* served = nullptr;
thread_local const CancelWaitsWhen* gives_up = nullptr;  // the innermost
constexpr int longest_sleep_ms = 20;  // the longest delay before a sleeping thread sees the flag

}  // namespace

ServeWhileWaiting::ServeWhileWaiting(Reactor* reactor) : outer_(std::exchange(served, reactor)) {}

ServeWhileWaiting::~ServeWhileWaiting() {
    served = outer_;
}

CancelWaitsWhen::CancelWaitsWhen(Condition condition)
    : condition_(std::move(condition)), outer_(std::exchange(gives_up, this)) {}

CancelWaitsWhen::CancelWaitsWhen(const std::atomic<bool>& flag)
    : CancelWaitsWhen([&flag] { return flag.load(); }) {}

CancelWaitsWhen::~CancelWaitsWhen() {
    gives_up = outer_;
}

bool wait_cancelled() {
    for (const CancelWaitsWhen* scope = gives_up; scope; scope = scope->outer_)
        if (scope->condition_()) return true;
    return false;
}

int poll_serving(pollfd* waiting, int timeout_ms) {
    if (gives_up)
        timeout_ms = timeout_ms < 0 ? longest_sleep_ms : std::min(timeout_ms, longest_sleep_ms);
    if (!served) return ::poll(waiting, waiting ? 1 : 0, timeout_ms);
    pollfd both[2] = {{served->fd(), POLLIN, 0}, waiting ? *waiting : pollfd{}};
    const int ready = ::poll(both, waiting ? 2 : 1, timeout_ms);
    if (ready <= 0) return ready;
    if (both[0].revents) {
        // A handler that waits on this thread must not serve the reactor again.
        Reactor* reactor = served;
        const ServeWhileWaiting not_again(nullptr);
        reactor->poll(0);
    }
    if (waiting) waiting->revents = both[1].revents;
    return waiting && both[1].revents ? 1 : 0;
}

}  // namespace tutti::net
