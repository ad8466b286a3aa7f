// One bound collective that can be run again and again: a schedule bound to channels, or an
// intrinsic that does the whole collective at once. A run does not allocate.
#pragma once

#include <string>

#include "base/result.h"
#include "transport/channel.h"

namespace tutti {

/// The reason why a run cannot go on.
struct Failure {
    Error error{Code::ok, nobody, 0, {}};  // rank: the sender of the wrong message, or the rank
                                           // that is silent
    Tag got;                               // mismatch: the other rank's call
};

/// The state of a run, as progress() finds it.
struct Poll {
    Poll(Code reached, bool progressed = false) : code(reached), moved(progressed) {}
    Poll(const Failure& why) : code(why.error.code), moved(true), failure(&why) {}
    bool pending() const { return code == Code::in_progress; }
    friend bool operator==(const Poll& poll, Code other) { return poll.code == other; }

    Code code;                         // ok: the run has ended
    bool moved;                        // this call made progress; a waiting thread backs off if it
                                       // did not
    const Failure* failure = nullptr;  // of an error: the operation's own, until its next start()
};

class Operation {
public:
    virtual ~Operation() = default;

    /// Begins a run. in and out may be the same memory. Allowed only when the previous run has
    /// ended.
    virtual void start(const Tag& tag, const void* in, void* out) = 0;
    /// Goes as far as it can without waiting.
    virtual Poll progress() = 0;
    /// Abandons the run: afterwards no thread and no device accesses the caller's buffers.
    virtual void cancel() = 0;
    /// on: the thread is about to sleep; a peer that lets the run continue must ring the doorbell.
    virtual void arm(bool on) = 0;
    /// The reason why the run cannot go on that no message reports (such as refused memory), else
    /// ok. A waiting thread checks it now and then.
    virtual Code health() const { return Code::ok; }
    /// After a run that ended with ok: a peer is gone and has not received everything that it was
    /// sent.
    virtual bool untaken() const { return false; }
    /// A peer for which the run waits right now, nobody if none. For error messages.
    virtual Rank waits_for() const = 0;
};

}  // namespace tutti
