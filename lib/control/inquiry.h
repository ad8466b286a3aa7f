// Questions about an operation that takes long: which ranks have not called it, have called
// something else, or do not answer. A question goes up the communicator's tree to the root and from
// there down to every rank; answers go the same way.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/protocol_context.h"

namespace tutti {

/// The ranks that had not called an operation at the last question.
struct Late {
    static constexpr std::size_t most_named = 8;
    std::vector<Rank> ranks;  // in order, at most most_named
    bool answered = false;    // these ranks answered the last question; else an earlier one
    // Ranks that still wait in an earlier call, with the rank for which each waits; at most
    // most_named.
    std::map<Rank, Rank> waiting;
    std::map<Rank, int64_t> silent_ms;  // time without an answer; at most most_named ranks
    /// The late rank that an error names; nobody if there is none.
    Rank first() const { return ranks.empty() ? nobody : ranks.front(); }
    std::vector<Rank> silent_for(int64_t least_ms) const;
    /// The first waiting rank, and the end of the chain of ranks that wait for each other. A rank
    /// that waits for `own`, the rank that asks, ends the chain.
    std::pair<Rank, Rank> chain(Rank own) const;
    /// "ranks 3, 5".
    std::string names() const { return names_of(ranks); }
    static std::string names_of(const std::vector<Rank>& ranks);
};

/// Any thread may call a function unless its comment says otherwise.
class Inquiry {
public:
    Inquiry(ProtocolContext& context, FailureState& state) : context_(context), state_(state) {}

    /// Called after a suspiciously long wait: finds the ranks that have not called the operation,
    /// or have called something else.
    void stalled(const Tag& tag) { handle_stall(context_.make(ControlMessage::Kind::stall, tag)); }
    /// The time of the next question of a thread that waits since began_ns. Questions become rarer,
    /// and one comes shortly before the deadline, because a late rank may have called by then.
    static int64_t ask_at(int64_t began_ns, int64_t now, int64_t timeout_ms);
    Late late(uint64_t sequence);
    /// The same after a mismatch, for the ranks that have yet to make a call that precedes it.
    void ask_who_is_behind();
    Late behind();

    /// Notes that a neighbour is alive. With the mutex held. True: the message needs no more
    /// handling.
    bool note_alive(Rank from, const ControlMessage& message);
    /// Takes a question or an answer, after note_alive().
    void receive(Rank from, const ControlMessage& message);
    /// The current question, if a gone neighbour may have kept it; it may be asked again at once.
    /// With the mutex held.
    std::optional<ControlMessage> interrupted(int64_t now);
    void ask_again(const ControlMessage& question) { handle_stall(question); }

private:
    using Lock = std::unique_lock<std::mutex>;
    void handle_stall(const ControlMessage& message);
    void handle_query(const ControlMessage& message, Rank from);
    void handle_late(const ControlMessage& message);
    void handle_suspect(const ControlMessage& message);
    bool note_late(const ControlMessage& message);
    void ask(Rank neighbour, const ControlMessage& message);
    bool is_silent(Rank neighbour) const;
    void report_silent(Rank neighbour);
    void handle_silent(const ControlMessage& message, Rank from);

    ProtocolContext& context_;
    FailureState& state_;
    // The context's mutex guards the members below.
    Late late_;                // from the answers that have reached this rank
    bool late_heard_ = false;  // an answer has come since the last question
    uint64_t late_sequence_ = 0;
    ControlMessage stall_;  // the last question passed on
    int64_t stall_ns_ = 0;
    std::map<Rank, int64_t> unheard_;    // neighbours: time of the first unanswered question
    std::map<Rank, int64_t> silent_ms_;  // as flooded; cleared by the next question
};

}  // namespace tutti
