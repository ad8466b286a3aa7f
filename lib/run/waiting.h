// Who waits for a communicator's requests, and how they hear that one is done.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "job/endpoint.h"
#include "run/request.h"

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
    void watch() { endpoint_.wakeups().watch(1); }
    void unwatch() { endpoint_.wakeups().watch(-1); }

    /// Threads of the program that drive: the service thread leaves the work to them.
    bool waiters() const { return waiters_.load() > 0; }
    void enter() {
        waiters_.fetch_add(1);
        endpoint_.wakeups().count_waiters(1);
    }
    /// True for the last one.
    bool leave() {
        endpoint_.wakeups().count_waiters(-1);
        return waiters_.fetch_sub(1) == 1;
    }

    /// Between these, whatever becomes done rings.
    void fall_asleep() { sleepers_.fetch_add(1); }
    void wake_up() { sleepers_.fetch_sub(1); }
    /// Whoever has changed what they sleep on rings.
    void rouse() {
        if (sleepers_.load(std::memory_order_seq_cst) > 0) endpoint_.wakeups().ring();
    }

    /// Of several threads that have nothing left but to sleep, one drives for all of them. Until
    /// this one may, its request is done, or so long. True: it may, and gives that back.
    bool sleep_beside_driver(const Request& request, int64_t limit_ms) {
        if (take_driving()) return true;
        rouse();  // the driver may sleep on what was under way before this one came
        std::unique_lock lock(mutex_);
        beside_.fetch_add(1);
        bool drives = false;
        changed_.wait_for(lock, std::chrono::milliseconds(limit_ms),
                          [&] { return request.done() || (drives = take_driving()); });
        beside_.fetch_sub(1);
        return drives;
    }
    void give_driving() {
        driven_.store(false);
        wake_beside();
    }

    /// The request is done. Afterwards it may be gone: its owner sees the code and frees it.
    void publish(Request& request, Code code) {
        if (request.driven_by_issuer) return request.code.store(code, std::memory_order_release);
        if (request.keep) drop_pending();
        request.completion.fire(code);
        request.code.store(code, std::memory_order_seq_cst);
        rouse();
        wake_beside();
    }

private:
    bool take_driving() { return !driven_.exchange(true); }
    // Either this sees who sleeps there, or that one sees what has changed.
    void wake_beside() {
        if (beside_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
    }

    Endpoint& endpoint_;
    std::atomic<int> pending_{0}, waiters_{0}, sleepers_{0}, beside_{0};
    std::atomic<bool> driven_{false};  // where its threads would sleep, one does so for all
    std::mutex mutex_;                 // of those that sleep beside it
    std::condition_variable changed_;
};

}  // namespace tutti
