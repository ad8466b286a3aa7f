// Drives the operations of one communicator, and waits for them.
#pragma once

#include <atomic>

#include "comm/core.h"

namespace tutti {

/// Something other than a request for which a thread waits. A thread that makes it happen rings the
/// endpoint's doorbell afterwards.
class Event {
public:
    virtual ~Event() = default;
    virtual bool happened() = 0;
    /// Called now and then during the wait.
    virtual void check_clock() = 0;
};

/// Any thread may call a function unless its comment says otherwise.
class ProgressEngine {
public:
    explicit ProgressEngine(Core& core) : core_(core) {}

    /// Drives a submitted blocking call to its end. The caller owns the stream; this releases it.
    Result<> finish_blocking(Request& request);
    /// timeout_ms 0: checks once; < 0: waits until the operation is over. False if the time was too
    /// short.
    bool wait(Request& request, int64_t timeout_ms);
    /// Drives pending operations meanwhile. False: it did not happen before the deadline.
    bool wait(Event& event, Deadline deadline);
    /// Returns `invalid` inside a completion callback, and for requests that this thread has yet to
    /// launch.
    Result<> may_wait(const Request& request) const;
    /// Called before a plan is freed, because its last run works in the plan's memory. The run has
    /// a deadline, so the wait ends.
    void wait_for_last_run(const Plan& plan);
    /// One pass over everything, for programs that make progress themselves.
    void advance();
    /// From now on the descriptor becomes readable when something may move, until advance() has
    /// moved it.
    int fd();
    /// Hands a non-blocking operation that is not done to another thread: to the service thread, or
    /// to a sleeping thread, which must wake to announce its sleep on the operation's stream.
    void hand_over();
    void check_deadlines();

    // Called by the endpoint's service thread, or by a thread that waits for another communicator.
    /// Drives non-blocking operations that no thread waits for; false if there are none.
    bool drive(bool& moved);
    /// Called before and after that thread sleeps. Waiting threads announce their own sleep; the
    /// last of them wakes the service thread when it leaves.
    bool arm(bool on);

private:
    // The work types for the wait loop (lib/wait).
    template <typename Awaited>
    class Wait;
    class LeftToProgram;
    void announce() {
        if (announces_) announce_to_program();
    }
    void announce_to_program();
    void finish_call();
    void recall();
    bool drive_all(bool& moved);
    bool arm_all(bool on);

    Core& core_;
    // announces_: the program has asked for the descriptor. announced_: this communicator's
    // operations are announced, so peers ring for them.
    std::atomic<bool> announces_{false}, announced_{false};
    bool armed_ = false;  // by arm(), under the endpoint's mutex
};

}  // namespace tutti
