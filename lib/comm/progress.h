// Moves what was issued on one communicator, and waits for it.
#pragma once

#include <atomic>

#include "comm/core.h"

namespace tutti {

/// Any thread may call what does not say otherwise.
class ProgressEngine {
public:
    explicit ProgressEngine(Core& core) : core_(core) {}

    /// Drives a blocking call that was submitted, its stream owned, to its end.
    Result<> finish_blocking(Request& request);
    /// 0: one look; < 0: until the operation is over. False if the time was too short.
    bool wait(Request& request, int64_t timeout_ms);
    /// invalid inside a completion callback, and for requests that this thread has yet to launch.
    Result<> may_wait(const Request& request) const;
    /// Before a plan goes. Its run has a deadline, and works in the plan's memory.
    void wait_for_last_run(const Plan& plan);
    /// One look at everything, for programs that make progress themselves.
    void advance();
    /// From now on the descriptor becomes readable when something may move, until advance() has
    /// moved it.
    int fd();
    /// A non-blocking operation that is not done is another thread's from now on: the service
    /// thread's, or of a thread that sleeps and has not announced itself on its stream.
    void hand_over();
    void check_deadlines();

    // The endpoint's service thread, or that of a program that waits for another communicator.
    /// Drives non-blocking operations that no thread waits for; false if there are none.
    bool drive(bool& moved);
    /// Before and after that thread sleeps. Threads that wait announce their own sleep; the last of
    /// them kicks the service thread.
    bool arm(bool on);

private:
    // The work that it hands to the protocol of waiting (lib/wait).
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
    // With manual progress, peers ring for what the program waits for by a descriptor.
    std::atomic<bool> announces_{false}, announced_{false};
    bool armed_ = false;  // by arm(), under the endpoint's mutex
};

}  // namespace tutti
