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
/// the service thread sleeps on it, and on the data reactor where it drives or sends in the
/// program's place. With manual progress there is no such thread: the control reactor always has
/// the data reactor in it, and the program's threads sleep on both.
///
/// No thread sleeps past what was published before ring() or wake_service(). Any thread may call
/// anything but what is the service thread's.
class Wakeups {
public:
    /// longest_sleep_ms: the longest that a thread sleeps between looks.
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

    /// A thread of the program sleeps until a doorbell, a socket or the time-out, unless the work
    /// moves before it does.
    template <SleepWork Work>
    void sleep(Work& work, int timeout_ms) {
        // Before the announcement: what another thread drains from here on may be for this one.
        const uint64_t since = rounds();
        sleep_unless_moved(
            work, [&] { poll_program(timeout_ms, since); }, [] {});
    }
    /// The same for a moment, when no doorbell rings for what the thread waits for.
    void nap() { poll_program(nap_ms, rounds()); }
    int longest_sleep_ms() const { return longest_sleep_ms_; }
    int wait_fd() const { return reactor_.fd(); }
    /// While something is watched, no thread sleeps for long: it does not ring.
    void watch(int change) { watched_.fetch_add(change); }
    /// Wakes the threads that sleep on the data reactor.
    void ring() { doorbell_.ring(); }
    /// Tells the service thread that there is work to drive.
    void wake_service();
    /// A non-blocking operation is under way, and no thread waits for it yet.
    void issued() {
        if (handover_.issued()) wake_service();
    }
    /// A thread of the program waits, and drives meanwhile.
    void claimed() {
        if (handover_.claimed()) wake_service();
    }
    /// So many more threads of the program wait: they send what is unsent, too.
    void count_waiters(int change) { waiters_.fetch_add(change); }
    /// A call returns. If the kernel has not taken all of its output, the service thread sends it.
    void returns() {
        if (unsent_.load(std::memory_order_relaxed) > 0) wake_for_unsent();
    }

    // The service thread's, or with manual progress that of a thread that takes its place.
    /// Whether any thread has rung since clear_service_wake(), which comes before the look at
    /// what for.
    bool service_woken() const { return service_woken_; }
    void clear_service_wake() { service_woken_ = false; }
    Handover& handover() { return handover_; }
    /// Sleeps with nothing to drive.
    void sleep_idle(int timeout_ms);
    /// Sleeps with work to drive, on both reactors, unless that moves or it is woken before. While
    /// the thread dozes, threads that drain the data reactor wake the service thread.
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
    std::atomic<bool> sends_unsent_{false};  // the service thread hears when one may send again
    std::atomic<bool> service_woken_{false}, dozing_{false};
};

}  // namespace tutti
