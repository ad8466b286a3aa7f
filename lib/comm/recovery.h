// The calls that go on after a failure: ranks agree, and make a smaller communicator, over the
// control tree. They need nothing of the communicator's data path.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "comm/core.h"
#include "comm/progress.h"
#include "control/agreement/shrinking.h"

namespace tutti {

class Communicator;

/// The ranks make these calls in the same order. One thread at a time: a second one gets `invalid`.
/// Each call ends at the communicator's deadline at the latest.
class Recovery {
public:
    Recovery(Core& core, ProgressEngine& progress) : core_(core), progress_(progress) {}

    /// The bitwise and of all callers' bits.
    Result<uint64_t> agree(std::string_view name, uint64_t bits);
    /// A communicator of the ranks that remain, without the leavers (ranks here). `name` is the
    /// C function's, for errors.
    Result<std::shared_ptr<Communicator>> shrink(std::string_view name,
                                                 const std::vector<Rank>& leavers);
    /// A call of several agreements that is made elsewhere.
    struct Rounds {
        Core& core;
        ProgressEngine& progress;
        const std::atomic<bool>& interrupted;  // the call must end soon
        /// Makes an agreement; first: it begins the call, else it is its next round.
        std::function<Decision(const AgreementCall& call, bool first, Deadline deadline)> decide;
    };
    using Body = std::function<Result<std::shared_ptr<Communicator>>(const Rounds& rounds)>;
    /// Makes the call unless another thread is inside one.
    Result<std::shared_ptr<Communicator>> make_call(std::string_view name, const Body& body);
    /// The ranks that are no members any more, as the last successful call has decided; ascending.
    std::vector<Rank> lost() const;

    /// Ends the present call with `aborted`, on the other ranks too. From any thread.
    void interrupt();

private:
    class Turn;
    class Outcome;
    /// A rank's communicator of an attempt, until all ranks have confirmed theirs.
    struct NewPart {
        std::shared_ptr<Communicator> comm;
        Endpoint::Intrinsics intrinsics;
    };
    Result<> may_begin(std::string_view name) const;
    Result<RankSet> check_leavers(std::string_view name, const std::vector<Rank>& leavers) const;
    Decision decide(std::string_view name, const AgreementCall& call, bool first,
                    Deadline deadline);
    Result<std::shared_ptr<Communicator>> take_steps(std::string_view name, Shrinking& steps,
                                                     Deadline deadline);
    Shrinking::OwnPart make(const SmallerGroup& group, NewPart& part, Deadline deadline) const;
    void note_lost(const RankSet& gone);

    Core& core_;
    ProgressEngine& progress_;
    std::atomic<bool> busy_{false}, interrupted_{false};
    mutable std::mutex mutex_;  // guards lost_
    std::vector<Rank> lost_;
};

}  // namespace tutti
