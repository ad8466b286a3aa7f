#include "callbacks.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

namespace tutti_torch {
namespace {

// The limit of the wait: a callback that waits for another callback's result never returns.
constexpr std::chrono::seconds under_way_grace{5};

struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    int under_way = 0;
    bool closed = false;
    const pid_t pid = ::getpid();  // a forked child has no running callbacks
};

// Never destroyed: threads may outlive main.
Gate& gate() {
    static auto* made = new Gate;
    return *made;
}

}  // namespace

void call_back(std::vector<Callback> callbacks) {
    if (callbacks.empty()) return;
    Gate& g = gate();
    {
        const std::lock_guard lock(g.mutex);
        if (g.closed) {
            new std::vector<Callback>(std::move(callbacks));
            return;
        }
        ++g.under_way;
    }
    for (const Callback& callback : callbacks) callback();
    callbacks.clear();
    const std::lock_guard lock(g.mutex);
    --g.under_way;
    g.changed.notify_all();
}

void close_callbacks() {
    Gate& g = gate();
    std::unique_lock lock(g.mutex);
    g.closed = true;
    if (::getpid() == g.pid)
        g.changed.wait_for(lock, under_way_grace, [&] { return g.under_way == 0; });
}

bool callbacks_closed() {
    const std::lock_guard lock(gate().mutex);
    return gate().closed;
}

}  // namespace tutti_torch
