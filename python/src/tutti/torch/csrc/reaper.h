// Threads that end operations without a waiter: futures, and dropped Works.
#pragma once

#include <tutti/tutti.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>

#include "hooks.h"
#include "in_flight.h"

namespace tutti_torch {

/// The first operation that needs a thread starts it. Callbacks of futures run here, and may call
/// tutti and even wait for another future: if all threads are busy, another one starts. The threads
/// keep the reaper alive.
class Reaper : public std::enable_shared_from_this<Reaper> {
public:
    /// From any thread, also from within tutti: does not block.
    void finish(std::shared_ptr<Operation> operation);
    /// Ends the threads once the queue is empty. Waits for that, unless this is one of the threads
    /// or the interpreter ends (a thread may wait for its lock). A later operation gets a new
    /// thread, which ends after it.
    void stop();

    /// Whether this thread is one of a group's.
    static bool runs_here();

    // All operations reach the reaper, so it also has these.

    /// The operations that may still be pending.
    InFlight& in_flight() { return in_flight_; }
    Hooks& hooks() { return hooks_; }
    /// Polls the pending operations, so that the hooks see which are over, and calls the abort
    /// hooks. The caller has no lock.
    void run_abort_hooks();
    /// Records a failure of a call. If it ended the group, calls the abort hooks; the caller has no
    /// lock.
    void note(const std::exception_ptr& error);
    /// The status that ended the group, TUTTI_OK while it works.
    tutti_status ended_by() const;
    /// The latest failure, or what ended the group; NULL if nothing failed.
    std::exception_ptr last_failure() const;
    /// Forgets all failures: a new communicator replaces the one that they ended.
    void forget_failures();
    /// Keeps a device operation's failure, since its waiters do not wait for its end.
    void owe(std::exception_ptr error);
    /// A caller has seen this failure: forget it.
    void settle(const std::exception_ptr& error);
    /// The first failure that no caller has seen; NULL if there is none.
    std::exception_ptr take_deferred_error();

private:
    void run();
    void start_thread();
    void poll_pending();

    InFlight in_flight_;
    Hooks hooks_;
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Operation>> queue_;
    std::exception_ptr owed_;
    std::exception_ptr last_failure_;
    tutti_status noted_ = TUTTI_OK;  // its status
    std::size_t threads_ = 0, idle_ = 0;
    bool stopping_ = false;
};

}  // namespace tutti_torch
