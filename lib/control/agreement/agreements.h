// The agreements of one communicator. Their numbers are the same on every rank, because all ranks
// make these calls in the same order; a call that ends with an error has used up its number too.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/agreement/agreement.h"

namespace tutti {

/// One call may need several instances (rounds): 48 bits for the call, 16 for the round.
constexpr uint64_t agreement_instance(uint64_t call, uint32_t round) {
    return call << 16 | round;
}

/// Guarded by its owner.
class Agreements {
public:
    explicit Agreements(const AgreementMember& member) : member_(member), known_(member.size) {}

    /// Begins the next call; returns its instance.
    uint64_t begin(const AgreementCall& call, int64_t now_ns, AgreementOutputs& out);
    /// Begins the next round of the present call.
    uint64_t begin_round(const AgreementCall& call, int64_t now_ns, AgreementOutputs& out);
    /// Ends the present instance with that error, unless it has ended.
    void give_up(Code code, const std::string& text, AgreementOutputs& out);

    void receive(Rank from, const AgreementMessage& message, AgreementOutputs& out);
    /// New facts from this rank's own detectors. An instance never forgets an accusation; the next
    /// call begins with the accusations of the latest facts alone.
    void learn(const Knowledge& facts, AgreementOutputs& out);
    void resend(int64_t now_ns, AgreementOutputs& out);
    int64_t next_due_ns() const;

    /// The outcome of the present instance; nullopt while it runs, and before the first one.
    std::optional<Decision> outcome() const;
    RankSet missing() const;
    /// The number of calls so far.
    uint64_t calls() const { return present_ >> 16; }
    /// The decisions that the other ranks may still need, for the goodbye of a rank that leaves:
    /// the receivers take them before they note that it has left. For an archive, too.
    std::vector<AgreementMessage> last_words() const;
    /// Dead ranks and ranks that have left, as this rank or a message's sender knows.
    const Knowledge& known() const { return known_; }
    std::size_t count() const { return instances_.size(); }

    /// Finished instances are kept for ranks that lack the decision. One would suffice: all other
    /// ranks have ended the instance before the last one once that has a successful decision. Only
    /// a rank that the callers left out may be in an earlier one, so the last instance in which
    /// they left no rank out is one of those kept.
    static constexpr std::size_t kept_before = 2;
    /// Instances that this rank has left behind and forgotten, while others still wait in them.
    static constexpr std::size_t kept_revived = 2;
    /// Instances that this rank has not begun; the messages of others are sent again.
    static constexpr std::size_t kept_early = 2;

private:
    uint64_t begin_instance(uint64_t instance, const AgreementCall& call, int64_t now_ns,
                            AgreementOutputs& out);
    std::size_t count_before_present() const;
    void forget_oldest();
    /// For a message with those facts. nullptr: too many are kept.
    Agreement* find_or_make(uint64_t instance, const Knowledge& theirs, AgreementOutputs& out);
    void keep_facts(const Knowledge& facts);

    AgreementMember member_;
    Knowledge known_;
    uint64_t present_ = 0;  // 0: no call yet
    std::map<uint64_t, Agreement> instances_;
};

/// The last decisions of communicators that this process has destroyed. Any rank may still need
/// them, because this rank may be the only one that has them.
class ClosedAgreements {
public:
    static constexpr std::size_t max_communicators = 64;

    void keep(uint32_t comm, std::vector<AgreementMessage> last_words);
    /// The answers to an encoded statement or inquiry, to be sent in this order; empty if there are
    /// none. They have all last words: an answer that said only one of them, and that this rank has
    /// left, would keep the asker from asking for the others.
    std::vector<Bytes> answers(uint32_t comm, ByteView message) const;

private:
    std::deque<std::pair<uint32_t, std::vector<AgreementMessage>>> closed_;  // oldest first
};

}  // namespace tutti
