// Everything that one seed decides in advance: the ranks, the network, the programs and the faults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/collective.h"
#include "base/types.h"
#include "control/control_message.h"

namespace simulation {

using namespace tutti;

constexpr int64_t us = 1'000, ms = 1'000'000;

/// A rule of the protocol that a test breaks on purpose, to see that the simulation finds it.
enum class Broken : uint8_t {
    nothing,
    no_resend,       // a waiting rank never sends its statement again
    no_confirm,      // a rank returns from shrink once it has made its part
    no_last_words,   // a goodbye's body is ignored
    no_unreachable,  // a refused detour is not told to the communicators
    no_failed,       // messages about a failure are ignored
    no_archive,      // a destroyed communicator answers no more
    no_quiet,        // a report of "quiet" after a mismatch is ignored
    other_culprit,   // a rank takes the rank that passes a revoke or an abort on for its cause
    copies,          // each message of an agreement is sent many times
};
constexpr int broken_rules = 9;

/// One call of the program of every rank.
struct Step {
    enum class Kind : uint8_t {
        collective,
        agree,
        revoke,
        shrink,
        shrink_without,
        abort,     // one rank aborts the communicator from a second thread
        mismatch,  // one rank makes another call than the others
    };
    Kind kind = Kind::collective;
    Collective collective = Collective::allreduce;
    std::size_t algorithm = 0;  // index among those that serve the call
    std::size_t count = 1;
    /// Decides the root, and the rank that revokes, aborts, is left out or makes the other call.
    uint64_t chosen = 0;
    int64_t before_ns = 0;  // the longest pause of a rank's program before the call
};

/// The reaction of every rank's program to an error.
enum class Policy : uint8_t { shrink, revoke_and_shrink, agree_and_shrink, destroy };

struct Fault {
    enum class Kind : uint8_t { kill, stop, cut };
    /// The moment: a time, or the n-th control message of a kind.
    enum class When : uint8_t { time, sent, received, joining, shrinking };
    Kind kind = Kind::kill;
    When when = When::time;
    int64_t at_ns = 0;
    uint8_t topic = 0;    // of TreeMessage
    uint8_t message = 0;  // of ControlMessage, if the topic is `control`
    uint64_t nth = 1;
    /// nobody: the rank that sends or receives that message.
    Rank victim = nobody;
    Rank also = 0;  // so many further ranks die or stop at the same moment
    int64_t for_ns = 0;
    Rank from_host = 0, to_host = 0;
    bool both_ways = true;
};

struct Scenario {
    uint64_t seed = 0;
    Rank size = 2, per_host = 1;
    int64_t timeout_ms = 10'000;
    bool manual = false;  // programs with manual progress
    bool mapped = false;  // messages are built in the channel's memory
    int64_t latency_ns = 0,
            tail_ns = 0;  // usual latencies end at the first, rare ones at the second
    uint64_t tail_percent = 0;
    Policy policy = Policy::shrink;
    bool destroys_old = true;  // right after a shrink; else at the end
    uint64_t bad_parts_percent = 0;
    int64_t heartbeat_ms = 0;  // 0: none
    bool resets = false;       // a kernel resets a connection that is closed with unread messages
    /// By generation: the calls on the job's communicator, then on the smaller ones.
    std::vector<std::vector<Step>> generations;
    std::vector<Fault> faults;

    /// A rank may miss a deadline although it is alive.
    bool is_slow() const;
    std::string describe() const;
};

struct Wishes {
    Rank ranks = 0;       // 0: the seed decides
    bool silent = false;  // a heartbeat, and faults that are longer than it
};
Scenario draw(uint64_t seed, const Wishes& wishes = {});

}  // namespace simulation
