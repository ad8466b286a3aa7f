// The messages of an agreement (agreement.h) and the values in them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "control/agreement/knowledge.h"

namespace tutti {

/// One rank's call; the merged calls of several ranks have the same type.
struct AgreementCall {
    enum class Kind : uint8_t { agree, shrink, confirm, grow };
    Kind kind = Kind::agree;
    RankSet leavers = {};
    uint64_t bits = ~uint64_t{0};  // merged: bitwise and
    uint32_t first_free_id = 0;    // merged: the greatest
    /// Not merged: the decision has the deciding root's.
    Bytes payload = {};

    bool operator==(const AgreementCall&) const = default;
};

/// A rank's reason to end the instance without a common result.
struct GiveUp {
    Code code = Code::timeout;
    Rank culprit = nobody;
    std::string text;

    bool operator==(const GiveUp&) const = default;
};

/// With Code::ok the common result; otherwise the ranks that get it end their calls with the error.
struct Decision {
    Ballot ballot;
    Code code = Code::ok;
    Rank culprit = nobody;  // of an error: the rank at fault, if one is known
    uint64_t bits = 0;
    uint32_t first_free_id = 0;
    RankSet gone;     // all ranks that are no members any more: dead, left, leavers and silent
    RankSet silent;   // excluded by a majority although their end is not proven
    RankSet leavers;  // excluded by the callers
    Bytes payload;
    std::string text;  // of an error

    bool operator==(const Decision&) const = default;
};

struct AgreementMessage {
    enum class Role : uint8_t {
        statement,  // up: the calls that the sender has merged
        inquiry,    // to any rank: the facts that the sender knows, and the ranks that it lacks
        decision,   // down, or the answer to a statement: `decision`
    };
    Role role = Role::statement;
    uint64_t instance = 0;
    /// A statement's sender has sent it before and asks for the ranks that are missing. An
    /// inquiry's sender asks for the receiver's statement.
    bool wants_answer = false;
    Knowledge known;
    /// The successful decision with the highest ballot that the sender knows, or the proposal for
    /// one: in an epoch above 0 the members must accept it first.
    std::optional<Decision> proposal;

    // A statement's fields, all for the ballot that follows from `known`.
    AgreementCall merged;
    RankSet contributed;
    /// The members that have accepted the proposal of this ballot.
    RankSet accepted;
    /// The highest of the ballots at which the contributors contributed for the first time.
    Ballot since;
    std::optional<GiveUp> gave_up;

    RankSet missing;                   // an inquiry's
    std::optional<Decision> decision;  // a decision's

    explicit AgreementMessage(Rank size)
        : known(size),
          merged{.leavers = RankSet(size)},
          contributed(size),
          accepted(size),
          missing(size) {}

    /// A longer text is cut; the payload is at most max_payload_bytes.
    Bytes encode() const;
    /// nullopt: malformed for a communicator of that size.
    static std::optional<AgreementMessage> decode(ByteView bytes, Rank size);

    static constexpr uint32_t max_payload_bytes = 16 * 1024;
    static constexpr uint32_t max_text_bytes = 1024;

    bool operator==(const AgreementMessage&) const = default;
};

}  // namespace tutti
