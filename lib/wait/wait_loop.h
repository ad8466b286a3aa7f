// The wait loop of a thread of the program: it drives the pending operations, spins, yields, checks
// the clocks, and sleeps. Several threads may run it for one communicator, and each drives the
// operations of all.
#pragma once

#include <concepts>
#include <cstdint>

#include "base/clock.h"
#include "wait/backoff.h"
#include "wait/waiting.h"

namespace tutti {

/// The work that a thread waits for, and the work that it does meanwhile.
template <typename Work>
concept WaitWork = SleepWork<Work> && requires(Work& work, bool& moved) {
    // done(): the work is done. ended(): the same for a thread whose time is over, which returns in
    // any case.
    { work.done() } -> std::same_as<bool>;
    { work.ended() } -> std::same_as<bool>;
    // drive() moves the work for which the thread waits, help() other work beside it.
    { work.drive(moved) } -> std::same_as<void>;
    { work.help(moved) } -> std::same_as<void>;
    // Checks the clocks and the control plane; called only now and then.
    { work.check_clocks() } -> std::same_as<void>;
    // One check of everything, for a thread that has no time to wait.
    { work.advance() } -> std::same_as<void>;
    // Before the wait, and after it.
    { work.begin() } -> std::same_as<void>;
    { work.end() } -> std::same_as<void>;
};

/// slept: set if the thread has slept. Its recall may have withdrawn announcements on which other
/// threads sleep, too.
template <WaitWork Work>
bool drive_until_done(Work& work, Waiting& waiting, Backoff backoff, const Deadline& limit,
                      bool& slept) {
    for (;;) {
        bool moved = false;
        work.drive(moved);
        if (work.done()) return true;
        work.help(moved);
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::spin) continue;
        work.check_clocks();
        if (limit.passed()) return work.ended();
        if (turn == Backoff::Turn::look) continue;
        waiting.sleep(work, limit.left_ms(waiting.longest_sleep_ms()));
        slept = true;
        backoff.woke();
    }
}

template <WaitWork Work>
bool check_once(Work& work) {
    bool moved = false;
    work.drive(moved);
    if (work.done()) return true;
    work.advance();
    return work.ended();
}

/// Waits until the work is done, at most timeout_ms (0: looks once; < 0: for ever). True: it is
/// done.
template <WaitWork Work>
bool wait_until_done(Work& work, Waiting& waiting, bool oversubscribed, int64_t timeout_ms) {
    waiting.enter();
    work.begin();
    bool slept = false;
    const bool done = timeout_ms == 0 ? check_once(work)
                                      : drive_until_done(work, waiting, Backoff(oversubscribed),
                                                         Deadline::after_ms(timeout_ms), slept);
    work.end();
    waiting.leave();
    // This thread's recall withdrew announcements on which other threads may still sleep. Until
    // here it drove their work in their place; now they must wake and announce again.
    if (slept) waiting.wake_sleepers();
    return done;
}

}  // namespace tutti
