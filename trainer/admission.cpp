// New processes join the ranks that train: they build their trainers while the ranks that there are
// make the same collective calls.
#include "trainer/assembly/agreement.h"
#include "trainer/base/boundary.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;

Result<> tutti_trainer::check_admits() const {
    TRAINER_TRY(readiness_.check());
    if (!steps_.recovery())
        return invalid("recovery.recover is not set")
            .advice("call tutti_trainer_set_recovery with recover before");
    if (steps_.has_begun())
        return invalid("a step has begun").advice("call tutti_trainer_finish before");
    if (!step_sync_->gradients().is_active())
        return fail(TUTTI_ERR_UNSUPPORTED,
                    "this trainer was built for one replica, so its steps have no collectives")
            .advice("build it with two ranks or devices, or more");
    return {};
}

// The newcomers make the same collective calls in tutti_parallelize and tutti_trainer_set_recovery.
// After an error that not all ranks have, the others' operations end, too.
Result<Comm> tutti_trainer::grown_comm(int newcomers) {
    TRAINER_ASSIGN(Comm larger, replicas_.comm.grown_by(newcomers));
    const Result<> met = contain([&]() -> Result<> {
        TRAINER_TRY(agree(larger, replicas_.local(), {}));
        TRAINER_TRY(compare_signatures(larger, model_signature(), true));
        return agree_on_recovery(larger, true);
    });
    if (met) return larger;
    if (!met.error().agreed) larger.abort();
    return tl::unexpected<Error>(met.error());
}

// The members have decided against the newcomers. They know the same losses, so all of them regroup
// or none does.
Result<> tutti_trainer::refuse(const Result<Comm>& larger) {
    if (larger) larger->abort();
    Error error = larger ? Error{TUTTI_ERR_ABORTED,
                                 -1,
                                 -1,
                                 "the newcomers could not join: another rank failed",
                                 false,
                                 "read the errors of the other ranks"}
                         : larger.error();
    if (replicas_.comm.has_losses()) {
        error.status = TUTTI_ERR_REVOKED;
        error.agreed = false;
        return recover_after(tl::unexpected<Error>(std::move(error)));
    }
    // A newcomer was lost. PEER_LOST would mean that the ranks have regrouped.
    if (error.status == TUTTI_ERR_PEER_LOST || error.status == TUTTI_ERR_REVOKED)
        error.status = TUTTI_ERR_ABORTED;
    return tl::unexpected<Error>(std::move(error));
}

// The members decide among themselves whether they go on with the newcomers. From then on the
// newcomers are ranks like all others, whose loss is recovered from.
Result<> tutti_trainer::admit(int newcomers) {
    TRAINER_TRY(check_admits());
    Result<Comm> larger = contain([&] { return grown_comm(newcomers); });
    const Result<bool> all = replicas_.comm.all_say(larger.has_value());
    if (!all) return recover_after(tl::unexpected<Error>(all.error()));
    if (!*all) return refuse(larger);
    replicas_.comm = *std::move(larger);
    replicas_.comm.set_recovers(true);
    steps_.restart_count();
    // The newcomers, too, synchronise until it succeeds.
    Result<> synced;
    do synced = recover_after(sync_together());
    while (!synced && synced.error().status == TUTTI_ERR_PEER_LOST);
    return synced;
}
