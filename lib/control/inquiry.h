// Questions about an operation that takes long: which ranks have not called it, which called
// something else, and which say nothing at all. They go up the communicator's tree to the root,
// from there down to everyone, and the answers the same way.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/protocol_context.h"

namespace tutti {

/// The ranks that had not called an operation when everyone was asked last.
struct Late {
    static constexpr std::size_t most_named = 8;
    std::vector<Rank> ranks;  // in order, so many of them
    bool answered = false;    // the last question; else these were late when it was asked before
    // Have not called it because they wait themselves, in an earlier call, and for whom; as many at
    // most.
    std::map<Rank, Rank> waiting;
    std::map<Rank, int64_t> silent_ms;  // do not answer at all, and since when; as many at most
    /// The one to name, nobody if there is none.
    Rank first() const { return ranks.empty() ? nobody : ranks.front(); }
    std::vector<Rank> silent_for(int64_t least_ms) const;
    /// The first that waits, and the end of the chain of ranks that wait for each other. Those that
    /// wait for the rank `own`, which asks, are the end.
    std::pair<Rank, Rank> chain(Rank own) const;
    /// "ranks 3, 5".
    std::string names() const { return names_of(ranks); }
    static std::string names_of(const std::vector<Rank>& ranks);
};

/// Any thread may call anything but what says otherwise.
class Inquiry {
public:
    Inquiry(ProtocolContext& context, FailureState& state) : context_(context), state_(state) {}

    /// Waiting suspiciously long: finds out who is missing, or who called something else.
    void stalled(const Tag& tag) { handle_stall(context_.make(ControlMessage::Kind::stall, tag)); }
    /// When one that has waited since then asks again: ever more rarely, and once more shortly
    /// before its deadline, as who was late may be there by then.
    static int64_t ask_at(int64_t began_ns, int64_t now, int64_t timeout_ms);
    Late late(uint64_t sequence);
    /// The same of those whom everyone waits for after a mismatch: they have yet to call what comes
    /// before it.
    void ask_who_is_behind();
    Late behind();

    /// Notes that a neighbour is there. With the mutex; true: the news say nothing more.
    bool note_alive(Rank from, const ControlMessage& message);
    /// Takes a question or an answer, after note_alive().
    void receive(Rank from, const ControlMessage& message);
    /// The question under way, if a neighbour that is gone may have kept it; it may be asked again
    /// at once. With the mutex.
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
    // The context's mutex guards these.
    Late late_;                // as far as this rank has heard
    bool late_heard_ = false;  // since it was asked last
    uint64_t late_sequence_ = 0;
    ControlMessage stall_;  // passed on already
    int64_t stall_ns_ = 0;
    std::map<Rank, int64_t> unheard_;    // neighbours, since when they were asked and said nothing
    std::map<Rank, int64_t> silent_ms_;  // as everyone was told; until the next question
};

}  // namespace tutti
