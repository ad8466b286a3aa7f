// One instance of agreement: the remaining ranks of a communicator get the same decision although
// ranks die, are slow or lose their links meanwhile. A state machine without I/O: messages and
// facts go in, messages come out, time is an argument.
//
// Way: each rank sends its call up the communicator's tree once its subtree is complete; the root
// decides and sends the decision down. 2(n-1) messages and two passes over the tree if nothing
// fails. A rank may return as soon as it has the decision; afterwards it answers for as long as the
// instance is kept.
//
// Ballots: the facts that a rank knows (Knowledge) name the root, and so the ballot. Every message
// carries the facts. A rank that learns of a higher ballot begins to collect anew, sends its
// statement again, and never again takes a decision of a lower one. A new root needs the statements
// of all remaining ranks, so it learns of a decision that one of them has, and issues that again.
//
// Accusations (epoch above 0): an excluded rank may be alive, so the root needs a majority of all
// members, and the contributors must have accepted the proposal before it is decided. If an
// excluded rank may have decided alone before (may_be_decided_elsewhere), the call ends with
// PEER_LOST.
//
// Invariants:
// - At most one successful decision is proposed in a ballot, by its root.
// - Two ranks that are not proven dead never get different successful decisions.
// - A rank in the decision's `gone` is dead or has left, or the callers left it out, or, if silent,
//   a majority of all members has accepted its exclusion.
// - The bits are the `and` over all remaining ranks' bits, and over those of some ranks that died.
// - An error does not contradict a success: the ranks that get an error know nothing of the others'
//   outcome. But the decision of an error reaches all who still wait, so they have the same error.
// Source: the tree, the early return and the answers afterwards are those of Herault et al.,
// Practical Scalable Consensus for Pseudo-Synchronous Distributed Systems, SC 2015; the promise and
// the acceptance are those of Lamport, The Part-Time Parliament, TOCS 16(2), 1998.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "control/agreement/agreement_message.h"
#include "control/agreement/agreement_view.h"

namespace tutti {

struct AgreementOutput {
    Rank to = nobody;
    AgreementMessage message;
};
using AgreementOutputs = std::vector<AgreementOutput>;

/// All that an instance remembers, apart from times and from what follows of `known`.
struct AgreementState {
    explicit AgreementState(Knowledge facts)
        : known(std::move(facts)),
          contributed(known.dead.size()),
          accepted(known.dead.size()),
          askers(known.dead.size()),
          missing_above(known.dead.size()) {}

    Knowledge known;
    std::optional<AgreementCall> call;
    std::optional<GiveUp> own_give_up;
    /// The ballot at which this rank contributed for the first time.
    std::optional<Ballot> first;
    /// The successful decision, or the proposal for one, with the highest ballot that is known.
    std::optional<Decision> proposal;
    /// The last decision that this rank has taken.
    std::optional<Decision> decision;
    /// The result of this rank's call; it does not change.
    std::optional<Decision> outcome;

    // Collected for the present ballot.
    std::optional<AgreementCall> merged;
    RankSet contributed, accepted;
    Ballot since;  // of the other contributors
    std::optional<GiveUp> gave_up;

    /// The ranks that have asked since this rank has asked its children for them.
    RankSet askers;
    /// The ranks that this rank's parent lacks, as the parent has said.
    RankSet missing_above;
    /// The last statement, which is sent again only if it has changed.
    std::optional<AgreementMessage> sent;
    Rank sent_to = nobody;

    bool operator==(const AgreementState&) const = default;
};

/// Guarded by its owner.
class Agreement {
public:
    Agreement(const AgreementMember& member, uint64_t instance, const Knowledge& known);

    /// This rank's call, once.
    void call(const AgreementCall& call, int64_t now_ns, AgreementOutputs& out);
    /// The call ends now with that error, unless it has ended. After a timeout the error names the
    /// first rank that is missing, else this rank. The ranks that still wait end too, unless a
    /// remaining rank knows of a decision.
    void give_up(Code code, const std::string& text, AgreementOutputs& out);
    /// Drops a message that contradicts itself.
    void receive(Rank from, const AgreementMessage& message, AgreementOutputs& out);
    /// New facts from this rank's own detectors.
    void learn(const Knowledge& facts, AgreementOutputs& out);
    /// Sends again what may have been lost; the pauses grow from 200 ms to 2 s. A new neighbour is
    /// asked without a pause.
    void resend(int64_t now_ns, AgreementOutputs& out);
    /// The time of the next resend(); never_ns while there is nothing to send again.
    int64_t next_due_ns() const;
    static constexpr int64_t never_ns = std::numeric_limits<int64_t>::max();

    const std::optional<Decision>& outcome() const { return state_.outcome; }
    /// The ranks for which this rank waits.
    RankSet missing() const;
    /// The message with which another rank gets this rank's decision; nullopt without one.
    std::optional<AgreementMessage> decision_message() const;
    const AgreementState& state() const { return state_; }

private:
    AgreementMessage make(AgreementMessage::Role role) const;
    bool is_decided() const;
    bool is_proposed() const;
    const RankSet& collected() const;
    bool may_be_decided_elsewhere() const;
    Ballot all_since() const;

    void merge_facts(const Knowledge& facts, AgreementOutputs& out);
    void handle_statement(Rank from, const AgreementMessage& message, AgreementOutputs& out);
    void handle_inquiry(Rank from, const AgreementMessage& message, bool is_behind,
                        AgreementOutputs& out);
    void merge_call(const RankSet& callers, const AgreementCall& call);
    void end_call(const GiveUp& reason);
    void check_call();
    void advance(AgreementOutputs& out);
    void decide(AgreementOutputs& out);
    void propose(AgreementOutputs& out);
    void fail_all(Code code, Rank culprit, const std::string& text, AgreementOutputs& out);
    void conclude(const Decision& decision, AgreementOutputs& out);
    void send_statement(bool wants_answer, AgreementOutputs& out);
    void ask_children(Rank asker, AgreementOutputs& out);
    void send_inquiry(Rank to, bool wants_answer, AgreementOutputs& out) const;

    AgreementMember member_;
    uint64_t instance_;
    AgreementState state_;
    AgreementView view_;
    int64_t pause_ns_, due_ns_ = never_ns;
};

}  // namespace tutti
