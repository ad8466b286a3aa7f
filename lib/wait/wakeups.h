// Sleeping for an endpoint and waking its sleepers: threads of the program, and the service thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/result.h"
#include "wait/doorbell.h"
#include "wait/handover.h"
#include "wait/reactor.h"
#include "wait/sleep.h"

namespace tutti {

/// Two reactors, a doorbell in each. The data reactor has the sockets of transports and the
/// doorbell, and the program's threads sleep on it. The control reactor has everything else, and
/// the service thread sleeps on it. While the service thread drives operations or sends output for
/// the program, it sleeps on the data reactor, too. With manual progress there is no service
/// thread: the control reactor always has the data reactor in it, and the program's threads sleep
/// on both.
///
/// No thread stays asleep once work has been published and ring() or wake_service() called. Any
/// thread may call any function, except the service thread's.
class Wakeups {
public:
    /// longest_sleep_ms: the longest time that a thread sleeps between checks.
    Wakeups(bool manual, int longest_sleep_ms)
        : manual_(manual), longest_sleep_ms_(longest_sleep_ms) {}

    /// Makes the doorbells.
    Result<> open();
    bool manual() const { return manual_; }
    Reactor& reactor() { return reactor_; }
    Reactor& data_reactor() { return data_reactor_; }
    int doorbell_fd() const { return doorbell_.fd(); }
    /// Connections with output that the kernel has not taken.
    std::atomic<int>& unsent() { return unsent_; }

    /// Called by a thread of the program: sleeps until a doorbell rings, a socket is ready or
    /// timeout_ms have passed, unless the work moves first.
    template <SleepWork Work>
    void sleep(Work& work, int timeout_ms) {
        // Read before the announcement: from here on another thread may drain a wake-up for this
        // one.
        const uint64_t since = rounds();
        sleep_unless_moved(
            work, [&] { poll_program(timeout_ms, since); }, [] {});
    }
    /// Sleeps at most nap_ms, for a thread whose event rings no doorbell.
    void nap() { poll_program(nap_ms, rounds()); }
    int longest_sleep_ms() const { return longest_sleep_ms_; }
    int wait_fd() const { return reactor_.fd(); }
    /// While something is watched (a device operation, which rings no doorbell), threads sleep only
    /// for short times.
    void watch(int change) { watched_.fetch_add(change); }
    /// Wakes the threads that sleep on the data reactor.
    void ring() { doorbell_.ring(); }
    /// Tells the service thread that there is work to drive.
    void wake_service();
    /// The issuing thread has queued a non-blocking operation, for which no thread waits yet.
    void issued() {
        if (handover_.issued()) wake_service();
    }
    /// A thread of the program begins to wait, and drives meanwhile.
    void claimed() {
        if (handover_.claimed()) wake_service();
    }
    /// Adds `change` to the number of the program's threads that wait. They send unsent output,
    /// too.
    void count_waiters(int change) { waiters_.fetch_add(change); }
    /// A call returns. If the kernel has not taken all of its output, the service thread sends it.
    void returns() {
        // Pairs with sleep_idle(): this thread has subtracted itself from waiters_ before, and the
        // service thread reads waiters_ after unsent_ has grown. seq_cst, so that one of the two
        // threads sees the output; on x86 the load costs no more than a relaxed one.
        if (unsent_.load(std::memory_order_seq_cst) > 0) wake_for_unsent();
    }

    // For the service thread only; with manual progress, for the thread that takes its place.
    /// True if a thread has called wake_service() since clear_service_wake(). The service thread
    /// clears first and then checks for work.
    bool service_woken() const { return service_woken_; }
    void clear_service_wake() { service_woken_ = false; }
    Handover& handover() { return handover_; }
    /// Sleeps while there is nothing to drive.
    void sleep_idle(int timeout_ms);
    /// Sleeps on both reactors with work to drive, unless the work moves or wake_service() is
    /// called before. While dozing_ is set, a thread of the program whose poll has called handlers
    /// wakes the service thread.
    template <SleepWork Work>
    void doze(Work& work) {
        dozing_ = true;
        sleep_unless_moved(
            work,
            [&] {
                if (!service_woken_) poll_dozing();
            },
            [&] { dozing_ = false; });
    }

private:
    static constexpr int nap_ms = 1;
    uint64_t rounds() const { return (manual_ ? reactor_ : data_reactor_).rounds(); }
    void poll_program(int timeout_ms, uint64_t since);
    void wake_for_unsent();
    void poll_dozing();

    const bool manual_;
    const int longest_sleep_ms_;
    Reactor reactor_, data_reactor_;
    Doorbell doorbell_, service_doorbell_;
    Handover handover_;
    std::atomic<int> watched_{0}, waiters_{0};
    std::atomic<int> unsent_{0};             // connections
    std::atomic<bool> sends_unsent_{false};  // the service thread watches for sockets that can send
    std::atomic<bool> service_woken_{false}, dozing_{false};
};

}  // namespace tutti
