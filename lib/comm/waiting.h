// Who waits for a communicator's requests, and how they hear that one is done.
#pragma once

#include <atomic>

#include "comm/endpoint.h"
#include "comm/request.h"

namespace tutti {

/// Any thread may call anything.
class Waiting {
public:
    explicit Waiting(Endpoint& endpoint) : endpoint_(endpoint) {}

    /// Non-blocking requests that are not done.
    bool pending() const { return pending_.load() > 0; }
    void add_pending() { pending_.fetch_add(1); }
    void drop_pending() { pending_.fetch_sub(1); }

    /// Operations on devices: nobody rings when they move on.
    void watch() { endpoint_.watch(1); }
    void unwatch() { endpoint_.watch(-1); }

    /// Threads of the program that drive: the service thread leaves the work to them.
    bool waiters() const { return waiters_.load() > 0; }
    void enter() {
        waiters_.fetch_add(1);
        endpoint_.count_waiters(1);
    }
    /// True for the last one.
    bool leave() {
        endpoint_.count_waiters(-1);
        return waiters_.fetch_sub(1) == 1;
    }

    /// Between these, whatever becomes done rings.
    void fall_asleep() { sleepers_.fetch_add(1); }
    void wake_up() { sleepers_.fetch_sub(1); }
    /// Whoever has changed what they sleep on rings.
    void rouse() {
        if (sleepers_.load(std::memory_order_seq_cst) > 0) endpoint_.ring();
    }

    /// The request is done. Afterwards it may be gone: its owner sees the code and frees it.
    void publish(Request& request, Code code) {
        if (request.keep) drop_pending();
        request.completion.fire(code);
        request.code.store(code, std::memory_order_seq_cst);
        rouse();
    }

private:
    Endpoint& endpoint_;
    std::atomic<int> pending_{0}, waiters_{0}, sleepers_{0};
};

}  // namespace tutti
