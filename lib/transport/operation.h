// One bound collective that can be run again and again: a schedule bound to channels, or an
// intrinsic that does the whole collective at once. Nothing here allocates once it is bound.
#pragma once

#include <string>

#include "base/result.h"
#include "transport/channel.h"

namespace tutti {

/// Why an operation cannot go on.
struct Trouble {
    Code code = Code::ok;
    Rank peer = nobody;  // whose message or silence it was
    Tag got;             // mismatch: the other side's call
    std::string cause;   // where a library said more than the code does
};

class Operation {
public:
    virtual ~Operation() = default;

    /// Begins a run. in and out may be the same memory. Only when no run is under way.
    virtual void start(const Tag& tag, const void* in, void* out) = 0;
    /// Goes as far as it can without waiting: ok (done), in_progress, or what is wrong.
    virtual Code progress() = 0;
    /// Whether the last progress() got anything done; a waiter that sees none backs off.
    virtual bool moved() const { return false; }
    /// Filled when progress() returned an error.
    virtual const Trouble& trouble() const = 0;
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
