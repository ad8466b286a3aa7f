#include "trainer/execution/readiness.h"

namespace tutti::trainer {

Result<> Readiness::check_not_ended() const {
    if (ended_.empty()) return {};
    return fail(TUTTI_ERR_ABORTED, "the trainer ended before: {}", ended_);
}

Result<> Readiness::check_whole(const char* call) const {
    TRAINER_TRY(check_not_ended());
    if (half_loaded_.empty()) return {};
    return invalid("{} after a tutti_trainer_load that failed half-way ({}); load again", call,
                   half_loaded_);
}

Result<> Readiness::check(const char* call) const {
    TRAINER_TRY(check_whole(call));
    if (!synchronised_) return invalid("{} before tutti_trainer_init_sync", call);
    return {};
}

Result<> Readiness::end_after(Result<> outcome) {
    if (outcome) return outcome;
    comm_.abort_after(outcome.error());
    if (comm_.size() > 1) ended_ = outcome.error().message;
    return outcome;
}

}  // namespace tutti::trainer
