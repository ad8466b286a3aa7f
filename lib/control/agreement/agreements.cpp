#include "control/agreement/agreements.h"

#include <algorithm>
#include <iterator>

namespace tutti {

uint64_t Agreements::begin(const AgreementCall& call, int64_t now_ns, AgreementOutputs& out) {
    return begin_instance(agreement_instance((present_ >> 16) + 1, 0), call, now_ns, out);
}

uint64_t Agreements::begin_round(const AgreementCall& call, int64_t now_ns, AgreementOutputs& out) {
    return begin_instance(present_ + 1, call, now_ns, out);
}

uint64_t Agreements::begin_instance(uint64_t instance, const AgreementCall& call, int64_t now_ns,
                                    AgreementOutputs& out) {
    present_ = instance;
    for (auto at = instances_.begin(); at != instances_.lower_bound(instance);)
        at = at->second.state().call ? std::next(at) : instances_.erase(at);
    while (count_before_present() > kept_before) forget_oldest();
    Agreement& begun = instances_.try_emplace(instance, member_, instance, known_).first->second;
    begun.learn(known_, out);
    begun.call(call, now_ns, out);
    return instance;
}

void Agreements::give_up(Code code, const std::string& text, AgreementOutputs& out) {
    if (const auto found = instances_.find(present_); found != instances_.end())
        found->second.give_up(code, text, out);
}

std::size_t Agreements::count_before_present() const {
    return static_cast<std::size_t>(
        std::distance(instances_.begin(), instances_.lower_bound(present_)));
}

/// The caller has counted at least two instances before the present one.
void Agreements::forget_oldest() {
    auto oldest = instances_.begin(), last_of_all = instances_.end();
    for (auto at = oldest; at != instances_.lower_bound(present_); ++at)
        if (const auto& call = at->second.state().call; call && call->leavers.empty())
            last_of_all = at;
    if (oldest == last_of_all) ++oldest;
    instances_.erase(oldest);
}

Agreement* Agreements::find_or_make(uint64_t instance, const Knowledge& theirs,
                                    AgreementOutputs& out) {
    if (const auto found = instances_.find(instance); found != instances_.end())
        return &found->second;
    if (instance < present_) {
        // This rank has left that instance behind. It contributes nothing, so that no success can
        // come of it any more, and the ranks that still wait there learn that.
        while (count_before_present() >= kept_before + kept_revived) forget_oldest();
        // If its statement lacked facts of the message, the answer would revive it once more.
        Knowledge facts = known_;
        facts.merge(theirs);
        Agreement& revived =
            instances_.try_emplace(instance, member_, instance, facts).first->second;
        revived.give_up(Code::timeout, "a rank has gone on to a later call", out);
        return &revived;
    }
    const auto early = std::distance(instances_.upper_bound(present_), instances_.end());
    if (early >= static_cast<std::ptrdiff_t>(kept_early)) {
        const auto last = std::prev(instances_.end());
        if (last->first < instance) return nullptr;
        instances_.erase(last);
    }
    return &instances_.try_emplace(instance, member_, instance, known_).first->second;
}

// A rank is dead or has left for all instances. Accusations may be withdrawn between calls.
void Agreements::keep_facts(const Knowledge& facts) {
    known_.dead.merge(facts.dead);
    known_.left.merge(facts.left);
}

void Agreements::receive(Rank from, const AgreementMessage& message, AgreementOutputs& out) {
    keep_facts(message.known);
    // A decision of an instance that this rank has forgotten is kept for ranks that ask. Its sender
    // gets no answer: a statement asks for the decision, and the two would go on for ever.
    AgreementOutputs unsent;
    const bool forgotten = message.instance < present_ && !instances_.contains(message.instance);
    const bool answers = !forgotten || message.role != AgreementMessage::Role::decision;
    AgreementOutputs& answer = answers ? out : unsent;
    if (Agreement* instance = find_or_make(message.instance, message.known, answer))
        instance->receive(from, message, answer);
}

void Agreements::learn(const Knowledge& facts, AgreementOutputs& out) {
    keep_facts(facts);
    known_.accusations = facts.accusations;
    for (auto& [number, instance] : instances_) instance.learn(known_, out);
}

void Agreements::resend(int64_t now_ns, AgreementOutputs& out) {
    for (auto& [number, instance] : instances_) instance.resend(now_ns, out);
}

int64_t Agreements::next_due_ns() const {
    int64_t due = Agreement::never_ns;
    for (const auto& [number, instance] : instances_) due = std::min(due, instance.next_due_ns());
    return due;
}

std::optional<Decision> Agreements::outcome() const {
    const auto found = instances_.find(present_);
    return found == instances_.end() ? std::nullopt : found->second.outcome();
}

RankSet Agreements::missing() const {
    const auto found = instances_.find(present_);
    return found == instances_.end() ? RankSet(member_.size) : found->second.missing();
}

std::vector<AgreementMessage> Agreements::last_words() const {
    std::vector<AgreementMessage> words;
    for (const auto& [number, instance] : instances_)
        if (auto message = instance.decision_message()) words.push_back(std::move(*message));
    return words;
}

void ClosedAgreements::keep(uint32_t comm, std::vector<AgreementMessage> last_words) {
    if (last_words.empty()) return;
    closed_.emplace_back(comm, std::move(last_words));
    if (closed_.size() > max_communicators) closed_.pop_front();
}

std::vector<Bytes> ClosedAgreements::answers(uint32_t comm, ByteView bytes) const {
    for (const auto& [closed, words] : closed_) {
        if (closed != comm) continue;
        const auto message = AgreementMessage::decode(bytes, words.front().known.dead.size());
        if (!message || message->role == AgreementMessage::Role::decision) return {};
        const auto is_asked = [&](const auto& word) { return word.instance == message->instance; };
        if (std::none_of(words.begin(), words.end(), is_asked)) return {};
        std::vector<Bytes> encoded;
        for (const AgreementMessage& word : words) encoded.push_back(word.encode());
        return encoded;
    }
    return {};
}

}  // namespace tutti
