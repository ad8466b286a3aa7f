// One bound collective that can be run again and again: a schedule bound to channels, or an
// intrinsic that does the whole collective at once. Nothing here allocates once it is bound.
#pragma once

#include <string>

#include "base/result.h"
#include "transport/channel.h"

namespace tutti {

/// Why a run cannot go on.
struct Failure {
    Error error{Code::ok, nobody, 0, {}};  // rank: whose message or silence it was
    Tag got;                               // mismatch: the other side's call
};

/// The state of a run, as progress() finds it.
struct Poll {
    Poll(Code reached, bool progressed = false) : code(reached), moved(progressed) {}
    Poll(const Failure& why) : code(why.error.code), moved(true), failure(&why) {}
    bool pending() const { return code == Code::in_progress; }
    friend bool operator==(const Poll& poll, Code code) { return poll.code == code; }

    Code code;                         // ok: it is over
    bool moved;                        // something was done: a waiter that sees none backs off
    const Failure* failure = nullptr;  // of an error: the operation's own, until its next start()
};

class Operation {
public:
    virtual ~Operation() = default;

    /// Begins a run. in and out may be the same memory. Only when no run is under way.
    virtual void start(const Tag& tag, const void* in, void* out) = 0;
    /// Goes as far as it can without waiting.
    virtual Poll progress() = 0;
    /// Abandons the run: afterwards no one touches the caller's buffers.
    virtual void cancel() = 0;
    /// on: the thread is about to sleep; peers must ring the doorbell when they move this on.
    virtual void arm(bool on) = 0;
    /// Why the run cannot go on although no message says so (memory that the system refuses), else
    /// ok. Looked at now and then by whoever waits.
    virtual Code health() const { return Code::ok; }
    /// After a run that ended with ok: a peer that is gone has not taken all that it was sent.
    virtual bool untaken() const { return false; }
    /// A peer that the run waits for right now, nobody if none: for messages.
    virtual Rank waits_for() const = 0;
};

}  // namespace tutti
