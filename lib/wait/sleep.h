// The protocol by which a thread sleeps, in the only order that loses no wake-up:
//
//   announce    whoever moves the work from here on rings, for it publishes before it looks for
//               sleepers, both sequentially consistent
//   look        once more: this thread sees what was published before the announcement
//   sleep       unless the look found something, or the work is over
//   recall      the announcement
//
// docs/explanation/thread-model.md draws it; test/models/sleep.pml is this protocol for spin.
#pragma once

#include <concepts>
#include <utility>

#include "wait/sleeper.h"

namespace tutti {

/// The work that a thread sleeps for.
template <typename Work>
concept SleepWork = requires(Work& work, bool& moved) {
    // Peers and other threads ring for it from now on. False: another thread is at some of it and
    // has not heard that this one sleeps, so look again.
    { work.announce() } -> std::same_as<bool>;
    // Goes as far as it can. False: there is nothing left to wait for.
    { work.check(moved) } -> std::same_as<bool>;
    { work.recall() } -> std::same_as<void>;
};

/// Goes through the protocol once; sleep() may return at any time. woke() follows, whether the
/// thread slept or not, and precedes the recall.
template <SleepWork Work, typename Sleep, typename Woke>
void sleep_unless_moved(Work& work, Sleep sleep, Woke woke) {
    OwnMoves::take();
    bool moved = !work.announce();
    const bool waits = work.check(moved);
    moved |= OwnMoves::take();
    if (waits && !moved) sleep();
    woke();
    work.recall();
}

/// The same for a program that goes on and may sleep on a descriptor later: the work is recalled
/// when the program comes back. True: something moved, perhaps of what this thread had announced
/// earlier, and the descriptor must become readable.
template <SleepWork Work>
bool announce_and_check(Work& work) {
    work.recall();
    work.announce();
    bool moved = OwnMoves::take();
    work.check(moved);
    return moved | OwnMoves::take();
}

}  // namespace tutti
