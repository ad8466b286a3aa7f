// The calls of a trainer that involve several of its parts.
#include "trainer/trainer.h"

#include <algorithm>
#include <array>

#include "trainer/assembly/recoverable.h"
#include "trainer/base/boundary.h"
#include "trainer/sync/sparse.h"

using namespace tutti::trainer;

Result<> tutti_trainer::sync() {
    TRAINER_TRY(readiness_.check_whole());
    return recover_after(sync_together());
}

Result<> tutti_trainer::sync_together() {
    Result<> synced = contain([&] { return sync_once(); });
    const Comm& ranks = replicas_.comm;
    if (!steps_.recovery() || ranks.size() == 1) return synced;
    // After a mismatch every rank has this error, and the communicator works on.
    if (!synced && synced.error().status == TUTTI_ERR_MISMATCH) return synced;
    if (!synced) ranks.abort_after(synced.error());
    TRAINER_ASSIGN(const bool all, ranks.all_say(synced.has_value()));
    if (!synced && !is_loss(synced.error())) return readiness_.end_after(synced);
    if (synced && !all)
        return fail(TUTTI_ERR_REVOKED, "synchronisation: it failed on another rank");
    if (synced) steps_.set_has_state(true);
    return synced;
}

Result<> tutti_trainer::sync_once() {
    LossRecovery* const recovery = steps_.recovery();
    if (recovery)
        TRAINER_TRY(recovery->broadcast(0));
    else if (replicas_.count() > 1)
        TRAINER_TRY(broadcast_.run());
    if (step_sync_) {
        TRAINER_TRY(steps_.iteration().load(iteration_name));
        TRAINER_TRY(step_sync_->take_snapshot());
    }
    readiness_.set_synchronised();
    return {};
}

Result<> tutti_trainer::epoch_barrier() {
    TRAINER_TRY(readiness_.check_not_ended());
    if (replicas_.comm.size() == 1) return {};
    return recover_after(begin_named(replicas_.comm.get(), "epoch barrier"));
}

Result<> tutti_trainer::set_recovery(const tutti_trainer_recovery& options) {
    TRAINER_TRY(readiness_.check_not_ended());
    if (steps_.has_begun()) return invalid("a step has begun").advice("call it between two steps");
    const bool recovers = options.recover != 0;
    if (recovers) TRAINER_TRY(check_recoverable(settings_, recorder_, step_sync_.has_value()));
    // The next collective call finds a loss, too, and can recover from it.
    const Result<> agreed = agree_on_recovery(replicas_.comm, recovers);
    if (!agreed && !(recovers && is_loss(agreed.error()))) return agreed;
    if (recovers)
        TRAINER_TRY(steps_.enable_recovery(options, memory_, replicas_, broadcast_));
    else
        steps_.disable_recovery();
    replicas_.comm.set_recovers(recovers);
    return {};
}

Result<> tutti_trainer::agree_on_recovery(const Comm& ranks, bool recovers) {
    if (ranks.size() == 1) return {};
    TRAINER_TRY(begin_named(ranks.get(), "set recovery"));
    std::array<int, 2> least = {recovers, -static_cast<int>(recovers)};
    TRAINER_TRY(from_call(
        tutti_allreduce(ranks.get(), least.data(), least.data(), 2, TUTTI_INT32, TUTTI_MIN),
        "comparison of recovery.recover"));
    if (least[0] == -least[1]) return {};
    return invalid("recovery.recover is {} here, but not on every rank", static_cast<int>(recovers))
        .advice("set it to the same value on every rank")
        .agreed();
}

Result<> tutti_trainer::recover() {
    TRAINER_TRY(readiness_.check_not_ended());
    if (!steps_.recovery())
        return invalid("recovery.recover is not set")
            .advice("set it with tutti_trainer_set_recovery, before a rank is lost");
    if (steps_.has_begun())
        return invalid("a step has begun").advice("call tutti_trainer_finish, which recovers");
    if (replicas_.comm.size() == 1) return {};
    const ErrorResult called = fail(TUTTI_ERR_REVOKED, "this rank called tutti_trainer_recover");
    TRAINER_TRY(steps_.recover_from(called.value(), true));
    return {};
}

Result<> tutti_trainer::recover_after(Result<> outcome) {
    if (outcome || !steps_.recovery() || !is_loss(outcome.error())) return outcome;
    TRAINER_ASSIGN(const AfterLoss after, steps_.recover_from(outcome.error(), true));
    return tl::unexpected<Error>(steps_.error_to_repeat(outcome.error(), after, ""));
}

Result<> tutti_trainer::write(int device, const std::string& name, const void* host,
                              std::size_t bytes) {
    TRAINER_TRY(state_.write(device, name, host, bytes));
    const bool counts = device == 0 && recorder_.buffer(recorder_.find(0, name)).counts_steps;
    return counts ? steps_.iteration().load(name) : Result<>();
}

Result<> tutti_trainer::save(const std::string& path) {
    TRAINER_TRY(readiness_.check());
    checkpoint::Entries entries;
    TRAINER_TRY(state_.add_to(entries));
    return recover_after(checkpoint::save(entries, {}, {}, replicas_.comm.get(), path));
}

Result<> tutti_trainer::load(const std::string& path, const tutti_checkpoint_opts* opts) {
    TRAINER_TRY(readiness_.check_not_ended());
    return recover_after(load_once(path, opts));
}

Result<> tutti_trainer::load_once(const std::string& path, const tutti_checkpoint_opts* opts) {
    TRAINER_ASSIGN(const auto strictness, checkpoint::read_strictness("opts", opts));
    checkpoint::Entries entries;
    TRAINER_TRY(state_.add_to(entries));
    bool began = false;
    const auto loaded =
        checkpoint::load(entries, {}, replicas_.comm.get(), path, strictness, &began);
    if (!loaded) {
        if (began) readiness_.set_half_loaded(loaded.error());
        return tl::unexpected<Error>(loaded.error());
    }
    readiness_.set_loaded();
    Result<> synced = sync_once();
    if (!synced) readiness_.set_half_loaded(synced.error());
    return synced;
}

Result<> tutti_trainer::sparse_pull(const std::string& parameter, int64_t total_rows,
                                    const int64_t* rows, std::size_t count, void* values) const {
    TRAINER_TRY(readiness_.check());
    std::vector<const Buffer*> shards;
    for (int d = 0; d < replicas_.local(); ++d) {
        TRAINER_ASSIGN(const Buffer* const shard, recorder_.look_up(d, parameter));
        shards.push_back(shard);
    }
    return pull_rows({.shards = shards, .devices = replicas_.devices, .total_rows = total_rows},
                     replicas_.comm, {rows, count}, static_cast<std::byte*>(values));
}

void tutti_trainer::count(tutti_trainer_counters& counters) const {
    counters.steps = steps_.completed();
    counters.collectives = collectives_.issued();
    counters.collective_bytes = collectives_.bytes();
    counters.buckets = memory_.bucket_count();
    counters.gradient_buffers = static_cast<int>(recorder_.of_kind(0, TUTTI_GRADIENT).size());
    counters.device_bytes = memory_.device_bytes();
}

Result<uint64_t> tutti_trainer::reduced_bytes(const std::string& parameter) const {
    TRAINER_ASSIGN(const Buffer* const found, recorder_.look_up(0, parameter));
    const Buffer& buffer = *found;
    if (buffer.kind != TUTTI_PARAMETER)
        return invalid("buffer '{}' is not a parameter", buffer.full_name())
            .advice("pass the name of a buffer of kind TUTTI_PARAMETER");
    if (buffer.distributed() || replicas_.count() == 1) return 0;
    if (buffer.sparse()) {
        const auto& tasks = tasks_.all();
        const auto task = std::ranges::find_if(tasks, [&](const Task& t) {
            return t.whole && &recorder_.buffer(t.whole_of) == &buffer;
        });
        return task == tasks.end() ? 0 : task->whole_bytes;
    }
    if (!step_sync_ || !step_sync_->gradients().is_active()) return 0;
    return static_cast<uint64_t>(steps_.completed()) * buffer.bytes;
}
