#include "control/agreement/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace tutti {
namespace {

using Role = AgreementMessage::Role;

constexpr int64_t first_resend_ns = 200'000'000, longest_resend_ns = 2'000'000'000;
constexpr int64_t at_once_ns = 0;

std::string_view kind_name(AgreementCall::Kind kind) {
    switch (kind) {
        case AgreementCall::Kind::agree:
            return "agree";
        case AgreementCall::Kind::shrink:
            return "shrink";
        case AgreementCall::Kind::confirm:
            return "confirm (the second half of shrink or grow)";
        case AgreementCall::Kind::grow:
            return "grow";
    }
    return "another call";
}

Rank first_of(const RankSet& set) {
    const std::vector<Rank> ranks = set.ranks();
    return ranks.empty() ? nobody : ranks.front();
}

/// Ranks that have died or left count as members, so that any two majorities have a rank in common.
/// If the ranks are half of all members, rank 0 makes them a majority.
bool is_majority(const RankSet& ranks) {
    const int64_t twice = 2 * int64_t{ranks.count()};
    return twice > ranks.size() || (twice == ranks.size() && ranks.contains(0));
}

/// A rank's outcome: the common decision, or an error if the decision excludes the rank.
Decision outcome_for(Rank rank, const Decision& common) {
    if (common.code != Code::ok || !common.gone.contains(rank)) return common;
    Decision error = common;
    error.code = Code::peer_lost;
    error.culprit = rank;
    error.text = common.leavers.contains(rank)
                     ? fmt::format(
                           "the other ranks have gone on without rank {}, as their calls "
                           "demanded",
                           rank)
                     : fmt::format(
                           "the other ranks have gone on without rank {}: they got no sign "
                           "of life from it",
                           rank);
    return error;
}

}  // namespace

Agreement::Agreement(const AgreementMember& member, uint64_t instance, const Knowledge& known)
    : member_(member),
      instance_(instance),
      state_(known),
      view_(member, known),
      pause_ns_(first_resend_ns) {}

AgreementMessage Agreement::make(Role role) const {
    AgreementMessage message(member_.size);
    message.role = role;
    message.instance = instance_;
    message.known = state_.known;
    message.proposal = state_.proposal;
    return message;
}

bool Agreement::is_decided() const {
    return state_.decision && state_.decision->ballot == view_.lead.ballot;
}

bool Agreement::is_proposed() const {
    return state_.proposal && state_.proposal->ballot == view_.lead.ballot;
}

/// The ranks that have taken the present phase's step.
const RankSet& Agreement::collected() const {
    return is_proposed() ? state_.accepted : state_.contributed;
}

Ballot Agreement::all_since() const {
    if (!state_.contributed.contains(member_.rank)) return state_.since;
    return std::max(state_.since, state_.first.value_or(view_.lead.ballot));
}

// In epoch 0 a root needs the contributions of all ranks that are not proven dead, so nothing was
// decided in a ballot in which one of today's contributors had not contributed yet. Nor was
// anything decided unknown to this root in its own ballot, or in one that precedes the known
// proposal: that proposal's root has asked the same question. Left are the ballots between them.
bool Agreement::may_be_decided_elsewhere() const {
    const Ballot since = all_since();
    if (since.epoch > 0) return false;
    uint32_t lowest = since.place;
    if (state_.proposal) {
        if (state_.proposal->ballot.epoch > 0) return false;
        lowest = std::max(lowest, state_.proposal->ballot.place + 1);
    }
    return lowest < view_.lead.ballot.place;
}

void Agreement::merge_facts(const Knowledge& facts, AgreementOutputs& out) {
    if (state_.known == facts || !state_.known.merge(facts)) return;
    const AgreementView before = std::exchange(view_, AgreementView(member_, state_.known));
    state_.askers = RankSet(member_.size);
    // A new neighbour may be gone, too. So this rank finds all that are gone, one after the other,
    // within a round trip each; the usual pauses would let it time out.
    if (!before.neighbours().includes(view_.neighbours())) due_ns_ = std::min(due_ns_, at_once_ns);
    if (view_.lead.ballot == before.lead.ballot) {
        // The rank whose place a new neighbour has taken may have died before it passed the
        // decision on.
        if (!is_decided()) return;
        const RankSet known_to = before.neighbours();
        for (const Rank rank : view_.neighbours().without(known_to).ranks())
            out.push_back({rank, *decision_message()});
        return;
    }
    state_.contributed = state_.accepted = RankSet(member_.size);
    state_.merged = state_.call;
    state_.since = {};
    state_.gave_up = state_.own_give_up;
    if (state_.call) state_.contributed.insert(member_.rank);
    pause_ns_ = first_resend_ns;
}

void Agreement::call(const AgreementCall& call, int64_t now_ns, AgreementOutputs& out) {
    if (state_.call) return;
    state_.call = call;
    due_ns_ = now_ns + pause_ns_;
    Knowledge facts(member_.size);
    facts.leavers = call.leavers;
    merge_facts(facts, out);
    RankSet own(member_.size);
    own.insert(member_.rank);
    merge_call(own, call);
    advance(out);
}

/// This rank's call ends without a decision. The rank still serves the others.
void Agreement::end_call(const GiveUp& reason) {
    state_.own_give_up = reason;
    if (!state_.gave_up) state_.gave_up = reason;
    if (state_.outcome) return;
    Decision error;
    error.code = reason.code;
    error.culprit = reason.culprit;
    error.gone = error.silent = error.leavers = RankSet(member_.size);
    error.text = reason.text;
    state_.outcome = error;
}

void Agreement::give_up(Code code, const std::string& text, AgreementOutputs& out) {
    if (state_.outcome) return;
    const Rank culprit = code == Code::timeout ? first_of(missing()) : member_.rank;
    end_call({code, culprit, text});
    advance(out);
}

void Agreement::learn(const Knowledge& facts, AgreementOutputs& out) {
    merge_facts(facts, out);
    advance(out);
}

void Agreement::receive(Rank from, const AgreementMessage& message, AgreementOutputs& out) {
    const Ballot theirs = message.known == state_.known
                              ? view_.lead.ballot
                              : leadership(message.known, member_.size, member_.arity).ballot;
    const auto is_later = [&](const std::optional<Decision>& d) { return d && d->ballot > theirs; };
    if (is_later(message.proposal) || is_later(message.decision)) return;
    merge_facts(message.known, out);
    const bool is_behind = theirs < view_.lead.ballot;
    if (message.proposal &&
        (!state_.proposal || message.proposal->ballot > state_.proposal->ballot))
        state_.proposal = message.proposal;
    switch (message.role) {
        case Role::statement:
            if (is_behind)
                send_inquiry(from, false, out);
            else
                handle_statement(from, message, out);
            break;
        case Role::inquiry:
            handle_inquiry(from, message, is_behind, out);
            break;
        case Role::decision:
            if (message.decision->ballot == view_.lead.ballot) conclude(*message.decision, out);
            break;
    }
    advance(out);
}

void Agreement::handle_statement(Rank from, const AgreementMessage& message,
                                 AgreementOutputs& out) {
    if (const auto answer = decision_message(); answer && is_decided()) {
        out.push_back({from, *answer});
        return;
    }
    if (!message.contributed.empty()) {
        merge_call(message.contributed, message.merged);
        state_.since = std::max(state_.since, message.since);
    }
    state_.accepted.merge(message.accepted);
    if (message.gave_up && !state_.gave_up) state_.gave_up = message.gave_up;
    if (!message.wants_answer) return;
    send_inquiry(from, false, out);
    if (!state_.decision) return;
    send_statement(true, out);
    ask_children(from, out);
}

void Agreement::handle_inquiry(Rank from, const AgreementMessage& message, bool is_behind,
                               AgreementOutputs& out) {
    if (from == view_.parent) state_.missing_above = message.missing;
    if (is_behind) return send_inquiry(from, false, out);
    if (!message.wants_answer) return;
    if (is_decided()) {
        out.push_back({from, *decision_message()});
        return;
    }
    if (from != view_.parent) return;
    // A statement that is not complete keeps the ranks in it from being named as late.
    state_.sent.reset();
    if (!state_.contributed.empty() || state_.gave_up) send_statement(false, out);
    ask_children(from, out);
}

/// After its first decision a rank asks by itself no more, only for a neighbour that still waits.
/// All neighbours may wait and ask again and again: this rank asks for all of them once one of them
/// has asked twice, so that the messages do not grow with the square of the neighbours.
void Agreement::ask_children(Rank asker, AgreementOutputs& out) {
    if (!state_.decision || collected().includes(view_.subtree)) return;
    const bool is_first = state_.askers.empty();
    if (state_.askers.insert(asker) && !is_first) return;
    state_.askers = RankSet(member_.size);
    state_.askers.insert(asker);
    for (const Rank child : view_.children) send_inquiry(child, true, out);
}

/// The ranks have made this call, as far as they do not differ already.
void Agreement::merge_call(const RankSet& callers, const AgreementCall& call) {
    const Rank earlier = first_of(state_.contributed), later = first_of(callers);
    state_.contributed.merge(callers);
    if (!state_.merged) {
        state_.merged = call;
        return;
    }
    AgreementCall& merged = *state_.merged;
    if (merged.kind != call.kind && !state_.gave_up)
        state_.gave_up = {Code::mismatch, later,
                          fmt::format("rank {} called {}, rank {} called {}", earlier,
                                      kind_name(merged.kind), later, kind_name(call.kind))};
    if (merged.leavers != call.leavers && !state_.gave_up)
        state_.gave_up = {Code::mismatch, later,
                          fmt::format("rank {} leaves out {}, rank {} leaves out {}", earlier,
                                      ranks_text(merged.leavers), later, ranks_text(call.leavers))};
    merged.bits &= call.bits;
    merged.first_free_id = std::max(merged.first_free_id, call.first_free_id);
}

void Agreement::check_call() {
    if (!state_.call || state_.own_give_up || state_.decision) return;
    const RankSet &own = state_.call->leavers, &all = state_.known.leavers;
    if (own != all) {
        // Ranks that are left out have no place in the tree, so all callers must name the same.
        const GiveUp differs{Code::mismatch, member_.rank,
                             fmt::format("rank {} leaves out {}, all calls together leave out {}",
                                         member_.rank, ranks_text(own), ranks_text(all))};
        if (all.contains(member_.rank)) return end_call(differs);  // no rank waits for this one
        state_.own_give_up = state_.gave_up = differs;
    } else if (view_.lead.root == nobody && !state_.outcome) {
        end_call({Code::peer_lost, member_.rank,
                  fmt::format("no rank remains that could decide: the others are gone, and rank {} "
                              "did not answer them",
                              member_.rank)});
    }
}

void Agreement::advance(AgreementOutputs& out) {
    check_call();
    if (is_decided()) return;
    if (is_proposed()) {
        if (view_.lead.ballot.epoch == 0) return conclude(*state_.proposal, out);
        if (state_.call && state_.accepted.insert(member_.rank))
            for (const Rank child : view_.children) send_inquiry(child, true, out);
    }
    if (view_.lead.root == member_.rank) return decide(out);
    if (state_.gave_up || collected().includes(view_.subtree)) send_statement(false, out);
}

void Agreement::decide(AgreementOutputs& out) {
    if (state_.call && !state_.first) state_.first = view_.lead.ballot;
    const bool is_complete = state_.call && collected().includes(view_.remaining);
    const RankSet silent = state_.known.silent();
    // Ranks that have died since they contributed or accepted count, too.
    const bool has_majority =
        view_.lead.ballot.epoch == 0 || is_majority(collected().without(silent));
    if (!is_proposed() && state_.gave_up && !state_.proposal &&
        (is_complete || (has_majority && !may_be_decided_elsewhere())))
        return fail_all(state_.gave_up->code, state_.gave_up->culprit, state_.gave_up->text, out);
    if (!is_complete) return;
    if (!has_majority)
        return fail_all(
            Code::peer_lost, first_of(silent),
            error_text(fail(Code::peer_lost,
                            "this rank is cut off from the majority: {} did not answer, and {} of "
                            "{} ranks may not decide without them",
                            ranks_text(silent), view_.remaining.count(), member_.size)
                           .advice("end this process, or let it join the job as a new one")
                           .value()),
            out);
    if (is_proposed()) return conclude(*state_.proposal, out);
    if (view_.lead.ballot.epoch > 0 && may_be_decided_elsewhere())
        return fail_all(Code::peer_lost, first_of(silent),
                        fmt::format("{} did not answer, and may know the result of this call",
                                    ranks_text(silent)),
                        out);
    propose(out);
}

void Agreement::propose(AgreementOutputs& out) {
    Decision decision;
    if (state_.proposal) {
        decision = *state_.proposal;
    } else {
        decision.bits = state_.merged->bits;
        decision.first_free_id = state_.merged->first_free_id;
        decision.gone = view_.gone;
        decision.silent = state_.known.silent();
        decision.leavers = state_.known.leavers;
        decision.payload = state_.call->payload;
    }
    decision.ballot = view_.lead.ballot;
    state_.proposal = decision;
    advance(out);
}

void Agreement::fail_all(Code code, Rank culprit, const std::string& text, AgreementOutputs& out) {
    Decision error;
    error.ballot = view_.lead.ballot;
    error.code = code;
    error.culprit = culprit;
    error.gone = view_.gone;
    error.silent = state_.known.silent();
    error.leavers = state_.known.leavers;
    error.text = text;
    conclude(error, out);
}

void Agreement::conclude(const Decision& decision, AgreementOutputs& out) {
    const bool excluded = decision.gone.contains(member_.rank);
    if (is_decided() || (decision.code == Code::ok && !state_.call && !excluded)) return;
    state_.decision = decision;
    if (decision.code == Code::ok) {
        state_.proposal = decision;
    } else {
        if (!state_.own_give_up)
            state_.own_give_up = {decision.code, decision.culprit, decision.text};
        state_.gave_up = state_.own_give_up;
    }
    if (!state_.outcome) state_.outcome = outcome_for(member_.rank, decision);
    const AgreementMessage message = *decision_message();
    for (const Rank child : view_.children) out.push_back({child, message});
    if (view_.lead.root != member_.rank) return;
    // These may be alive; they learn that the others have gone on.
    RankSet outside = decision.silent;
    outside.merge(decision.leavers);
    for (const Rank rank : outside.ranks()) out.push_back({rank, message});
}

std::optional<AgreementMessage> Agreement::decision_message() const {
    if (!state_.decision) return std::nullopt;
    AgreementMessage message = make(Role::decision);
    message.decision = state_.decision;
    return message;
}

void Agreement::send_statement(bool wants_answer, AgreementOutputs& out) {
    if (view_.parent == nobody) return;
    const bool contributes = state_.contributed.contains(member_.rank);
    if (contributes && !state_.first) state_.first = view_.lead.ballot;
    AgreementMessage message = make(Role::statement);
    if (state_.merged) message.merged = *state_.merged;
    message.merged.payload.clear();
    message.contributed = state_.contributed;
    message.accepted = state_.accepted;
    message.since = all_since();
    message.gave_up = state_.gave_up;
    if (!wants_answer && state_.sent_to == view_.parent && state_.sent == message) return;
    state_.sent = message;
    state_.sent_to = view_.parent;
    message.wants_answer = wants_answer;
    out.push_back({view_.parent, std::move(message)});
}

void Agreement::send_inquiry(Rank to, bool wants_answer, AgreementOutputs& out) const {
    AgreementMessage message = make(Role::inquiry);
    message.wants_answer = wants_answer;
    message.missing = missing();
    out.push_back({to, std::move(message)});
}

RankSet Agreement::missing() const {
    if (is_decided()) return RankSet(member_.size);
    if (view_.lead.root == member_.rank) return view_.remaining.without(collected());
    RankSet lacking = view_.subtree;
    lacking.merge(state_.missing_above);
    return lacking.without(collected());
}

int64_t Agreement::next_due_ns() const {
    return state_.call && !state_.decision ? due_ns_ : never_ns;
}

void Agreement::resend(int64_t now_ns, AgreementOutputs& out) {
    if (now_ns < next_due_ns()) return;
    due_ns_ = now_ns + pause_ns_;
    pause_ns_ = std::min(2 * pause_ns_, longest_resend_ns);
    send_statement(true, out);
    if (collected().includes(view_.subtree)) return;
    for (const Rank child : view_.children) send_inquiry(child, true, out);
}

}  // namespace tutti
