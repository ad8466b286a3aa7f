// The calls of a trainer that involve several of its parts.
#include "trainer/trainer.h"

#include <algorithm>

#include "trainer/sync/sparse.h"

using namespace tutti::trainer;

Result<> tutti_trainer::sync() {
    TRAINER_TRY(readiness_.check_whole());
    if (replicas_.count() > 1) TRAINER_TRY(broadcast_.run());
    if (step_sync_) {
        TRAINER_TRY(steps_.iteration().load(iteration_name));
        TRAINER_TRY(step_sync_->take_snapshot());
    }
    readiness_.set_synchronised();
    return {};
}

Result<> tutti_trainer::epoch_barrier() const {
    TRAINER_TRY(readiness_.check_not_ended());
    if (replicas_.comm.size() == 1) return {};
    return begin_named(replicas_.comm.get(), "epoch barrier");
}

Result<> tutti_trainer::write(int device, const std::string& name, const void* host,
                              std::size_t bytes) {
    TRAINER_TRY(state_.write(device, name, host, bytes));
    const bool counts = device == 0 && recorder_.buffer(recorder_.find(0, name)).counts_steps;
    return counts ? steps_.iteration().load(name) : Result<>();
}

Result<> tutti_trainer::save(const std::string& path) const {
    TRAINER_TRY(readiness_.check());
    checkpoint::Entries entries;
    TRAINER_TRY(state_.add_to(entries));
    return checkpoint::save(entries, {}, {}, replicas_.comm.get(), path);
}

Result<> tutti_trainer::load(const std::string& path, const tutti_checkpoint_opts* opts) {
    TRAINER_TRY(readiness_.check_not_ended());
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
    Result<> synced = sync();
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
