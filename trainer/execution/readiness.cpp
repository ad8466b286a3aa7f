#include "trainer/execution/readiness.h"

namespace tutti::trainer {

Result<> Readiness::check_not_ended() const {
    if (ended_.empty()) return {};
    return fail(TUTTI_ERR_ABORTED, "the trainer ended after an earlier failure: {}", ended_)
        .advice("correct that failure, build a new trainer on every rank, and load a checkpoint");
}

Result<> Readiness::check_whole() const {
    TRAINER_TRY(check_not_ended());
    if (half_loaded_.empty()) return {};
    return invalid("a tutti_trainer_load failed half-way and left the state incomplete: {}",
                   half_loaded_)
        .advice("call tutti_trainer_load again, on every rank");
}

Result<> Readiness::check() const {
    TRAINER_TRY(check_whole());
    if (!synchronised_)
        return invalid("the state of the ranks is not synchronised")
            .advice("call tutti_trainer_init_sync before, on every rank");
    return {};
}

Result<> Readiness::end_after(Result<> outcome) {
    if (outcome) return outcome;
    comm_.abort_after(outcome.error());
    if (comm_.size() == 1) return outcome;
    ended_ = without_advice(outcome.error().message);
    if (comm_.recovers()) comm_.leave();
    return outcome;
}

}  // namespace tutti::trainer
