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

// The newcomers make the same collective calls in tutti_parallelize. On an error the others'
// operations end, too.
Result<Comm> tutti_trainer::grown_comm(int newcomers) {
    TRAINER_ASSIGN(Comm larger, replicas_.comm.grown_by(newcomers));
    const Result<> met = contain([&]() -> Result<> {
        TRAINER_TRY(agree(larger, replicas_.local(), {}));
        return compare_signatures(larger, model_signature());
    });
    if (met) return larger;
    larger.abort();
    return tl::unexpected<Error>(met.error());
}

// The members decide among themselves whether they go on with the newcomers. From then on the
// newcomers are ranks like all others, whose loss is recovered from.
Result<> tutti_trainer::admit(int newcomers) {
    TRAINER_TRY(check_admits());
    Result<Comm> larger = contain([&] { return grown_comm(newcomers); });
    const Result<bool> all = replicas_.comm.all_say(larger.has_value());
    if (!all) return recover_after(tl::unexpected<Error>(all.error()));
    if (!*all) {
        if (larger) larger->abort();
        const Result<> failed =
            larger ? fail(TUTTI_ERR_ABORTED, "the newcomers could not join: another rank failed")
                         .advice("read the errors of the other ranks")
                   : Result<>(tl::unexpected<Error>(larger.error()));
        return replicas_.comm.has_losses() ? recover_after(failed) : failed;
    }
    replicas_.comm = *std::move(larger);
    replicas_.comm.set_recovers(true);
    steps_.restart_count();
    const Result<> agreed = contain([&] { return agree_on_recovery(true); });
    if (!agreed && !is_loss(agreed.error())) return agreed;
    // The newcomers, too, synchronise until it succeeds.
    Result<> synced;
    do synced = recover_after(sync_together());
    while (!synced && synced.error().status == TUTTI_ERR_PEER_LOST);
    return synced;
}
