// One rank's view of its communicator, and the interfaces between the parts of the failure
// protocol.
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

/// A lost rank's messages arrive no later than this after the news of its loss.
constexpr int64_t on_the_way_ns = 20'000'000;

class FailureProtocolHost {
public:
    virtual ~FailureProtocolHost() = default;
    virtual void send_control(Rank to, const ControlMessage& message) = 0;
    virtual const Recorder& recorder() const = 0;
    /// The protocol's clock; a simulation has its own.
    virtual int64_t clock_ns() const { return now_ns(); }
    /// A shorter time than on_the_way_ns if nothing of that lost rank can be on its way any more.
    virtual int64_t grace_ns(Rank lost) const { return static_cast<void>(lost), on_the_way_ns; }
    /// The rank for which a thread waits in this communicator, nobody if it is not known; nullopt
    /// if no thread waits.
    virtual std::optional<Rank> blocked_on() = 0;
    /// The state has changed: end the operations that must end, and wake sleeping threads. Never
    /// called with locks held.
    virtual void apply_verdicts() = 0;
    /// Number the next operations after this sequence. Called while no operation runs.
    virtual void resume(uint64_t sequence) = 0;
};

struct ProtocolContext {
    ProtocolContext(Rank own, Rank all, uint32_t communicator, FailureProtocolHost& messenger)
        : rank(own), size(all), comm(communicator), host(messenger), tree(own, all) {}

    ControlMessage make(ControlMessage::Kind kind, const Tag& tag) const;
    /// Sends to every remaining rank along the communicator's own tree; each rank passes on a
    /// message that is new to it. With the mutex held.
    void flood(const ControlMessage& message, Rank except);
    int64_t now_ns() const { return host.clock_ns(); }

    const Rank rank, size;
    const uint32_t comm;
    FailureProtocolHost& host;
    std::mutex mutex;  // guards the tree, and the state of each part that has this context
    LiveTree tree;
};

/// The failure protocol's interface for its parts.
class FailureState {
public:
    virtual ~FailureState() = default;
    // With the context's mutex held.
    virtual uint64_t epoch() const = 0;
    /// The first sequence of this epoch's mismatch, if it has one.
    virtual std::optional<uint64_t> mismatch_from() const = 0;
    /// True if the caller has yet to make a call that precedes the mismatch.
    virtual bool behind_mismatch(uint64_t last_number) const = 0;
    /// True if the call may still run: it is of this epoch and before its mismatch, and the
    /// communicator has not ended.
    virtual bool may_run(const Tag& tag) const = 0;
    /// Repeats to a neighbour the failure messages that explain why that operation does not end.
    virtual void catch_up(Rank to, uint64_t number) = 0;
    // Without the mutex.
    /// Ends the communicator on every rank.
    virtual void raise(const Error& error) = 0;
    /// A peer's message belongs to a different call.
    virtual void raise_mismatch(const Tag& own, Rank peer, const Tag& got) = 0;
    /// Two other ranks made different calls.
    virtual void raise_mismatch(const ControlMessage& message) = 0;
};

}  // namespace tutti
