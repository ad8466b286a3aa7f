// Recovery from another rank's loss: the ranks that are left make their states equal.
#pragma once

#include <vector>

#include "trainer/plan/model_memory.h"
#include "trainer/sync/replicas.h"
#include "trainer/sync/state_broadcast.h"
#include "trainer/sync/state_copy.h"

namespace tutti::trainer {

/// The place of a rank in the training when it learnt of a loss.
struct RankPosition {
    int64_t finished = 0;        // steps, those without samples included
    int64_t total = 0;           // samples of the last finished step
    bool between_steps = false;  // in a call of the program's or the trainer's that is no step
    bool has_state = true;       // of the training: false in a newcomer before it has got it
};

struct AfterLoss {
    /// Another rank had finished this rank's step: this rank has its state now.
    bool has_finished = false;
    int64_t total = 0;  // samples of that step
    /// Some rank was between two steps.
    bool between_steps = false;
    int ranks_before = 0;
};

/// A step changes parameters and the optimiser's state only in its update, which begins after the
/// step's last collective (hold_updates). So the groups that the step writes before need a copy,
/// and a rank that has done its last collective finishes the step.
class LossRecovery {
public:
    /// copied: the groups that a step may have written when a collective fails. kept: all groups.
    static Result<LossRecovery> make(const tutti_trainer_recovery& options,
                                     std::vector<const BufferGroup*> copied,
                                     std::vector<const BufferGroup*> kept, Replicas& replicas,
                                     StateBroadcast& broadcast);

    void set_options(const tutti_trainer_recovery& options) { options_ = options; }
    std::size_t copied_bytes() const { return begin_.bytes(); }
    int64_t count() const { return count_; }

    /// Copies the state of a step's begin.
    Result<> take() { return begin_.take(); }
    /// Gives the state of the step's begin back.
    Result<> restore() const { return begin_.restore(); }
    /// Collective on the ranks that are left. All of them have finished the same steps afterwards,
    /// and have the same parameters; further ranks may die meanwhile.
    Result<AfterLoss> regroup(const RankPosition& own);
    /// Broadcasts the state. After a failure, this rank has what it had before.
    Result<> broadcast(int root);
    /// Asks the program for this rank's new shares. False: it has no function for that.
    Result<bool> resize(int64_t* samples) const;

private:
    LossRecovery(const tutti_trainer_recovery& options, StateCopy begin,
                 std::vector<const BufferGroup*> kept, Replicas& replicas,
                 StateBroadcast& broadcast)
        : options_(options),
          begin_(std::move(begin)),
          kept_(std::move(kept)),
          replicas_(&replicas),
          broadcast_(&broadcast) {}
    Result<std::vector<RankPosition>> exchange(const RankPosition& own) const;
    Result<AfterLoss> level(const RankPosition& own);

    tutti_trainer_recovery options_;
    StateCopy begin_;
    std::vector<const BufferGroup*> kept_;
    Replicas* replicas_;
    StateBroadcast* broadcast_;
    int64_t count_ = 0;
};

}  // namespace tutti::trainer
