// The protocol by which a thread sleeps, in the only order that loses no wake-up:
//
//   announce    from here on a thread that moves the work rings: it publishes the move, then
//               reads the announcement, both sequentially consistent (Dekker's pattern)
//   check       once more: this thread sees all that was published before the announcement
//   sleep       unless the check found something, or the work is over
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
    // From now on peers and other threads ring when they move the work. False: another thread owns
    // a part of it, which could not be announced, so check again instead of sleeping.
    { work.announce() } -> std::same_as<bool>;
    // Drives the work as far as it goes now. False: there is nothing left to wait for.
    { work.check(moved) } -> std::same_as<bool>;
    { work.recall() } -> std::same_as<void>;
};

/// Runs the protocol once. sleep() may return at any time. woke() is called before the recall,
/// whether or not the thread slept.
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

/// The same for a program that may sleep on a descriptor later: the work stays announced until the
/// program's next call recalls it. True: something moved, perhaps work that this thread had
/// announced earlier, so the caller must make the descriptor readable.
template <SleepWork Work>
bool announce_and_check(Work& work) {
    work.recall();
    work.announce();
    bool moved = OwnMoves::take();
    work.check(moved);
    return moved | OwnMoves::take();
}

}  // namespace tutti
