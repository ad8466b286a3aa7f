// What happens after building: synchronising, stepping, looking.
#include <algorithm>
#include <array>

#include "trainer/base/boundary.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;

Result<> tutti_trainer::need_working(const char* call) const {
    if (!broken_.empty()) return fail(TUTTI_ERR_ABORTED, "the trainer ended before: {}", broken_);
    if (!half_loaded_.empty())
        return invalid("{} after a tutti_trainer_load that failed half-way ({}); load again", call,
                       half_loaded_);
    if (!synced_) return invalid("{} before tutti_trainer_init_sync", call);
    return {};
}

// The others hear of it at once, wherever in the step it was.
Result<> tutti_trainer::ended_by(Result<> failure) {
    if (!failure) engine_.abort_after(failure.error());
    if (!failure && comm_.size() > 1) broken_ = failure.error().message;
    return failure;
}

Result<> tutti_trainer::sync() {
    if (!broken_.empty() || !half_loaded_.empty()) TRAINER_TRY(need_working("tutti_trainer_sync"));
    if (replicas() > 1) {
        // The root of a broadcast only sends: it would hear of another operation in its next one.
        TRAINER_TRY(begin_named(comm_.get(), sync_name));
        std::vector<std::pair<Task*, tutti_request*>> under_way;
        Result<> outcome;
        for (int t : sync_tasks_) {
            Task& task = tasks_[static_cast<std::size_t>(t)];
            Result<tutti_request*> request = collectives_.begin(task);
            if (!request) {
                engine_.abort_after(request.error());
                outcome = tl::unexpected<Error>(std::move(request).error());
                break;
            }
            under_way.emplace_back(&task, *request);
        }
        for (auto& [task, request] : under_way) {
            auto one = from_call(tutti_wait(&request, -1), "synchronisation");
            if (outcome && !one) outcome = std::move(one);
        }
        TRAINER_TRY(outcome);
        for (auto& [task, request] : under_way) TRAINER_TRY(collectives_.end(*task));
    }
    if (trains_) TRAINER_TRY(load_iteration(iteration_name));
    if (averaging_) TRAINER_TRY(averaging_->take_snapshot());
    synced_ = true;
    return {};
}

// Scopes may have counters of their own, which follow.
Result<> tutti_trainer::load_iteration(const std::string& counter) {
    TRAINER_TRY(device(0).copy(&iteration_, recorder_.buffer(recorder_.find(0, counter)).data,
                               sizeof(iteration_)));
    return store_iteration();
}

Result<> tutti_trainer::store_iteration() {
    for (const Buffer& buffer : recorder_.buffers())
        if (buffer.counts_steps)
            TRAINER_TRY(device(buffer.device).copy(buffer.data, &iteration_, sizeof(iteration_)));
    return {};
}

Result<int64_t> tutti_trainer::count_samples(const int64_t* samples) {
    if (!samples) return invalid("options.uneven is set, but samples is NULL");
    std::array<int64_t, 2> own = {0, devices()};  // samples, first device that has any
    for (int i = 0; i < devices() * settings_.micro_batches; ++i) {
        if (samples[i] < 0) return invalid("samples[{}] is {}", i, samples[i]);
        own[0] += samples[i];
        if (samples[i] > 0) own[1] = std::min<int64_t>(own[1], i / settings_.micro_batches);
    }
    std::vector<int64_t> all(own.begin(), own.end());
    all.resize(2 * static_cast<std::size_t>(comm_.size()));
    if (comm_.size() > 1)
        TRAINER_TRY(run_within(step_name, "number of samples", [&](auto* opts, auto* request) {
            return tutti_iallgather(comm_.get(), own.data(), all.data(), 2, TUTTI_INT64, opts,
                                    request);
        }));
    int64_t total = 0;
    for (int rank = comm_.size() - 1; rank >= 0; --rank) {
        const int64_t* of_rank = &all[2 * static_cast<std::size_t>(rank)];
        total += of_rank[0];
        if (of_rank[0] == 0) continue;
        for (const GroupTask& use : group_tasks_)
            tasks_[static_cast<std::size_t>(use.task)].root =
                rank * devices() + static_cast<int>(of_rank[1]);
    }
    return total;
}

Result<int64_t> tutti_trainer::step(const int64_t* samples) {
    TRAINER_TRY(need_working("tutti_trainer_step"));
    if (settings_.external)
        return invalid("options.external_autograd is set: call begin and finish");
    RunContext context{.micro_batches = settings_.micro_batches, .iteration = iteration_};
    context.loss_scale = settings_.scale_learning_rate ? 1 : scale();
    context.samples = samples;
    TRAINER_TRY(ended_by(contain([&] { return run_micro_batches(context); })));
    if (settings_.uneven && context.total == 0) return 0;
    ++steps_;
    if (trains_) {
        ++iteration_;
        TRAINER_TRY(store_iteration());
    }
    return context.total;
}

Result<> tutti_trainer::run_micro_batches(RunContext& context) {
    if (settings_.uneven) {
        TRAINER_ASSIGN(context.total, count_samples(context.samples));
        if (context.total == 0) return {};
    }
    for (int m = 0; m < settings_.micro_batches; ++m) {
        context.micro = m;
        TRAINER_TRY(executor_->run(m + 1 == settings_.micro_batches ? last_ : micro_, context));
    }
    return {};
}

Result<> tutti_trainer::begin() {
    TRAINER_TRY(need_working("tutti_trainer_begin"));
    if (!stream_) return invalid("options.external_autograd is not set: call tutti_trainer_step");
    if (stream_->under_way()) return invalid("tutti_trainer_begin before the last step's finish");
    for (const Buffer& buffer : recorder_.buffers())
        if (buffer.kind == TUTTI_GRADIENT)
            TRAINER_TRY(ended_by(device(buffer.device).zero(buffer.data, buffer.bytes)));
    stream_->begin({.iteration = iteration_});
    return {};
}

Result<> tutti_trainer::grad_ready(int device, const std::string& parameter) {
    if (!stream_ || !stream_->under_way())
        return invalid("tutti_trainer_grad_ready of '{}' outside of begin and finish", parameter);
    TRAINER_ASSIGN(const Buffer* const buffer, find(device, parameter));
    if (buffer->kind != TUTTI_PARAMETER)
        return invalid("'{}' is no parameter", buffer->full_name());
    if (buffer->gradient == none)
        return invalid("'{}' has no gradient: the trainer has no update builder",
                       buffer->full_name());
    return stream_->ready(buffer->gradient, parameter);
}

Result<> tutti_trainer::finish() {
    if (!stream_ || !stream_->under_way()) return invalid("tutti_trainer_finish without begin");
    TRAINER_TRY(ended_by(contain([&]() -> Result<> {
        TRAINER_TRY(stream_->finish());
        return executor_->run(last_, {.iteration = iteration_});
    })));
    ++steps_;
    ++iteration_;
    return store_iteration();
}

Result<> tutti_trainer::epoch_barrier() {
    if (!broken_.empty()) TRAINER_TRY(need_working("tutti_trainer_epoch_barrier"));
    if (comm_.size() == 1) return {};
    return begin_named(comm_.get(), "epoch barrier");
}

Result<> tutti_trainer::sparse_pull(const std::string& parameter, int64_t total_rows,
                                    const int64_t* rows, std::size_t count, void* values) {
    TRAINER_TRY(need_working("tutti_trainer_sparse_pull"));
    std::vector<const Buffer*> shards;
    for (int d = 0; d < devices(); ++d) {
        TRAINER_ASSIGN(const Buffer* const shard, find(d, parameter));
        shards.push_back(shard);
    }
    return pull_rows({.shards = shards, .devices = devices_, .total_rows = total_rows}, comm_,
                     {rows, count}, static_cast<std::byte*>(values));
}

Result<const Buffer*> tutti_trainer::find(int device, const std::string& name) const {
    if (device < 0 || device >= devices())
        return invalid("device {} is out of range; there are {}", device, devices());
    const int found = recorder_.find(device, name);
    if (found == none) return invalid("device_{} has no buffer '{}'", device, name);
    return &recorder_.buffer(found);
}

Result<> tutti_trainer::read(int d, const std::string& name, void* host, std::size_t bytes) {
    TRAINER_ASSIGN(const Buffer* const found, find(d, name));
    const Buffer& buffer = *found;
    if (bytes != buffer.bytes)
        return invalid("'{}' has {} bytes, not {}", buffer.full_name(), buffer.bytes, bytes);
    if (buffer.shares_memory)
        return invalid(
            "'{}' shares its memory, so it has no value between steps; declare it with "
            "TUTTI_KEEP",
            buffer.full_name());
    return device(d).copy(host, buffer.data, bytes);
}

Result<> tutti_trainer::write(int d, const std::string& name, const void* host, std::size_t bytes) {
    TRAINER_ASSIGN(const Buffer* const found, find(d, name));
    const Buffer& buffer = *found;
    if (bytes != buffer.bytes)
        return invalid("'{}' has {} bytes, not {}", buffer.full_name(), buffer.bytes, bytes);
    if (buffer.shares_memory) return invalid("'{}' shares its memory", buffer.full_name());
    TRAINER_TRY(device(d).copy(buffer.data, host, bytes));
    return d == 0 && buffer.counts_steps ? load_iteration(name) : Result<>();
}

void tutti_trainer::count(tutti_trainer_counters& counters) const {
    counters.steps = steps_;
    counters.collectives = collectives_.issued();
    counters.collective_bytes = collectives_.bytes();
    counters.buckets = static_cast<int>(buckets_.size());
    counters.gradient_buffers = static_cast<int>(recorder_.of_kind(0, TUTTI_GRADIENT).size());
    std::size_t most = 0;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
        std::size_t bytes = rest_[d].bytes();
        for (const auto* groups : {&parameters_, &computed_, &state_, &buckets_})
            for (const Group& group : *groups)
                bytes += group.memory[d].bytes() + (group.wide.empty() ? 0 : group.sums_bytes());
        most = std::max(most, bytes);
    }
    counters.device_bytes = most;
}

Result<uint64_t> tutti_trainer::reduced_bytes(const std::string& parameter) const {
    TRAINER_ASSIGN(const Buffer* const found, find(0, parameter));
    const Buffer& buffer = *found;
    if (buffer.kind != TUTTI_PARAMETER) return invalid("'{}' is no parameter", buffer.full_name());
    if (buffer.distributed() || replicas() == 1) return 0;
    if (buffer.sparse()) {
        const auto task = std::ranges::find_if(tasks_, [&](const Task& t) {
            return t.whole && &recorder_.buffer(t.whole_of) == &buffer;
        });
        return task == tasks_.end() ? 0 : task->whole_bytes;
    }
    if (bucket_tasks_.empty()) return 0;
    return static_cast<uint64_t>(steps_) * buffer.bytes;
}
