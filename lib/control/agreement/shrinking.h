// The remaining ranks make a smaller communicator: a state machine without I/O over two or more
// agreements. The first one decides who is left and the number of the new communicator. Then each
// rank makes its part, and a second agreement confirms that all parts are there. If a member has
// died meanwhile, or a part is missing, the second one's decision has the members and the number
// for the next attempt, so each further attempt costs one agreement.
//
// Invariant: two ranks that finish with success have the same members, the same number, and the
// same answer about intrinsics; every member has confirmed that it made this part. A rank that
// finishes with an error has dropped its part.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "control/agreement/agreement_message.h"

namespace tutti {

/// The communicator that an attempt makes.
struct SmallerGroup {
    uint32_t id = 0;
    std::vector<Rank> members;  // their ranks in the old communicator, ascending
    RankSet gone;               // the ranks of the old communicator that are no members

    bool operator==(const SmallerGroup&) const = default;
};

class Shrinking {
public:
    /// A rank's work after an event.
    struct Action {
        enum class Kind : uint8_t {
            agree,   // begin an agreement with `call`: the call's first one, or its next round
            make,    // make the part of `group`, then call made()
            finish,  // return `error`, or the part of `group` if there is none
        };
        Kind kind = Kind::agree;
        bool drop_part = false;  // first destroy the part of the attempt before
        AgreementCall call;
        SmallerGroup group;
        bool has_intrinsics = false;  // of finish: all ranks have joined them
        std::optional<Error> error;
    };
    /// An attempt's part on this rank.
    struct OwnPart {
        std::optional<Error> error;  // there is no part, or it has failed already
        bool has_intrinsics = false;
        uint32_t first_free_id =
            0;  // above the group's id; if that was taken, above the others too
    };

    Shrinking(Rank rank, Rank size, const RankSet& leavers);

    Action begin(uint32_t first_free_id);
    /// The outcome of the agreement that the last action began.
    Action decided(const Decision& decision);
    Action made(OwnPart part);

    static constexpr int max_attempts = 16;
    /// After so many attempts in a row that failed although no rank died, the call fails.
    static constexpr int max_failures = 3;

private:
    Action make_next(const Decision& decision);
    Action fail_with(Error error) const;

    Rank rank_, size_;
    RankSet leavers_;
    SmallerGroup group_;
    OwnPart part_;
    int attempts_ = 0, failures_ = 0;
};

}  // namespace tutti
