// A communicator's ranks as one of them sees them, and what the parts of its failure protocol ask
// each other.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/result.h"
#include "control/control_message.h"
#include "control/live_tree.h"
#include "record/recorder.h"

namespace tutti {

class FailureProtocolHost {
public:
    virtual ~FailureProtocolHost() = default;
    virtual void send_control(Rank to, const ControlMessage& message) = 0;
    virtual const Recorder& recorder() const = 0;
    /// The clock of everything that the protocol times: a simulation has its own.
    virtual int64_t clock_ns() const { return now_ns(); }
    /// While the program waits in this communicator: for which rank, nobody if that is not known.
    virtual std::optional<Rank> blocked_on() = 0;
    /// Something changed: end what must end, wake whoever sleeps. Never called with locks held.
    virtual void apply_verdicts() = 0;
    /// The next operation's number follows this sequence's. Called while nothing runs.
    virtual void resume(uint64_t sequence) = 0;
};

struct ProtocolContext {
    ProtocolContext(Rank own, Rank all, uint32_t communicator, FailureProtocolHost& messenger)
        : rank(own), size(all), comm(communicator), host(messenger), tree(own, all) {}

    ControlMessage make(ControlMessage::Kind kind, const Tag& tag) const;
    /// To everyone who is there, along the communicator's own tree; each rank passes on what is new
    /// to it. With the mutex.
    void flood(const ControlMessage& message, Rank except);
    int64_t now_ns() const { return host.clock_ns(); }

    const Rank rank, size;
    const uint32_t comm;
    FailureProtocolHost& host;
    std::mutex mutex;  // guards the tree, and the state of each part that has this context
    LiveTree tree;
};

/// The failure protocol, to its parts.
class FailureState {
public:
    virtual ~FailureState() = default;
    // With the context's mutex.
    virtual uint64_t epoch() const = 0;
    /// The first sequence of this epoch's mismatch, if it has one.
    virtual std::optional<uint64_t> mismatch_from() const = 0;
    /// Whether the caller has yet to call operations from before the mismatch.
    virtual bool behind_mismatch(uint64_t last_number) const = 0;
    /// Whether the call may still run: it is of this epoch and before its mismatch, and the
    /// communicator is not over.
    virtual bool may_run(const Tag& tag) const = 0;
    /// Repeats to a neighbour the news without which it would ask about that operation.
    virtual void catch_up(Rank to, uint64_t number) = 0;
    // Without it.
    /// The communicator is over, for everyone.
    virtual void raise(const Error& error) = 0;
    /// A peer's message was another call's.
    virtual void raise_mismatch(const Tag& own, Rank peer, const Tag& got) = 0;
    /// Two other ranks called different things.
    virtual void raise_mismatch(const ControlMessage& message) = 0;
};

}  // namespace tutti
