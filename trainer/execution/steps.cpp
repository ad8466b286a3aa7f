#include "trainer/execution/steps.h"

#include <algorithm>

#include "trainer/base/boundary.h"
#include "trainer/sync/samples.h"

namespace tutti::trainer {

void Steps::start(StepPlan plan, StepSync* sync) {
    plan_ = std::move(plan);
    sync_ = sync;
    const int in_flight = settings_.max_in_flight;
    if (settings_.external) {
        // No node of the programs writes gradients: the stream takes the buckets' nodes, in their
        // order, and begin has set the gradients to zero.
        stream_ = std::make_unique<GradientStream>(
            engine_, sync_ ? sync_->gradients().take_nodes(plan_.last) : Program{},
            sync_ ? sync_->gradients().members() : std::vector<std::vector<int>>{},
            recorder_.buffers().size(), in_flight);
        for (ProgramNode& node : plan_.last.nodes) node.zero.clear();
    }
    find_dependencies(plan_.micro, recorder_);
    find_dependencies(plan_.last, recorder_);
    if (settings_.dag)
        executor_ = std::make_unique<DagExecutor>(engine_, settings_.threads, in_flight);
    else
        executor_ = std::make_unique<SerialExecutor>(engine_, in_flight);
    if (settings_.check) engine_.check_declarations();
}

Result<int64_t> Steps::run(const int64_t* samples) {
    TRAINER_TRY(readiness_.check());
    if (settings_.external)
        return invalid("options.external_autograd is set, so that the trainer runs no whole step")
            .advice(
                "call tutti_trainer_begin, tutti_trainer_grad_ready and tutti_trainer_finish "
                "instead");
    std::vector<int64_t> shares;  // the samples of each replica after a loss
    for (;;) {
        RunContext context{.micro_batches = settings_.micro_batches,
                           .iteration = iteration_.value()};
        context.loss_scale =
            settings_.scale_learning_rate ? 1 : settings_.mean_scale(replicas_.count());
        context.samples = samples;
        const Result<> done = contain([&] { return try_step(context); });
        if (done) {
            TRAINER_TRY(count_step(context.total));
            return context.total;
        }
        TRAINER_ASSIGN(const AfterLoss after, recover_from(done.error(), false));
        if (after.has_finished) return after.total;
        const auto all = static_cast<std::size_t>(replicas_.local() * settings_.micro_batches);
        if (samples && samples != shares.data()) {
            shares.assign(samples, samples + all);
            samples = shares.data();
        }
        bool retries = false;
        if (!after.between_steps) {
            TRAINER_ASSIGN(retries, resize(samples ? shares.data() : nullptr));
        }
        if (!retries)
            return tl::unexpected<Error>(error_to_repeat(
                done.error(), after, "set this rank's new share and call tutti_trainer_step"));
    }
}

Result<> Steps::try_step(RunContext& context) {
    if (recovery_) TRAINER_TRY(recovery_->take());
    return run_micro_batches(context);
}

Result<> Steps::count_step(int64_t total) {
    ++finished_;
    last_total_ = total;
    if (settings_.uneven && total == 0) return {};
    ++completed_;
    return sync_ || settings_.external ? iteration_.advance() : Result<>();
}

Result<bool> Steps::resize(int64_t* samples) {
    Result<bool> answer = contain([&] { return recovery_->resize(samples); });
    if (!answer) TRAINER_TRY(readiness_.end_after(tl::unexpected<Error>(answer.error())));
    return answer;
}

Result<> Steps::enable_recovery(const tutti_trainer_recovery& options, ModelMemory& memory,
                                Replicas& replicas, StateBroadcast& broadcast) {
    if (recovery_) {
        recovery_->set_options(options);
        return {};
    }
    const std::vector<bool> written = written_before_update(plan_, recorder_);
    std::vector<const BufferGroup*> copied, kept;
    for (const BufferGroup* group : memory.kept_groups()) {
        kept.push_back(group);
        // A framework writes computed buffers outside of the trainer's operations.
        if (std::ranges::any_of(group->all_members(), [&](int b) {
                return written[static_cast<std::size_t>(b)] ||
                       (settings_.external && recorder_.buffer(b).kind == TUTTI_COMPUTED);
            }))
            copied.push_back(group);
    }
    TRAINER_ASSIGN(recovery_, LossRecovery::make(options, std::move(copied), std::move(kept),
                                                 replicas, broadcast));
    hold_updates(plan_.last);
    return {};
}

Result<AfterLoss> Steps::recover_from(const Error& cause, bool between_steps) {
    const auto end = [&](Error error) {
        return tl::unexpected<Error>(
            readiness_.end_after(tl::unexpected<Error>(std::move(error))).error());
    };
    if (!recovery_ || !is_loss(cause)) return end(cause);
    const Result<AfterLoss> after = contain([&]() -> Result<AfterLoss> {
        if (!between_steps) TRAINER_TRY(recovery_->restore());
        TRAINER_ASSIGN(const AfterLoss regrouped,
                       recovery_->regroup({finished_, last_total_, between_steps, has_state_}));
        if (!regrouped.has_finished) return regrouped;
        TRAINER_TRY(count_step(regrouped.total));
        TRAINER_TRY(iteration_.load(iteration_name));
        return regrouped;
    });
    if (after) return after;
    Error error = after.error();
    // PEER_LOST is the status of calls after which the trainer goes on.
    if (error.status == TUTTI_ERR_PEER_LOST) error.status = TUTTI_ERR_ABORTED;
    return end(std::move(error));
}

Error Steps::error_to_repeat(const Error& cause, const AfterLoss& after, const char* repeat) const {
    const Comm& comm = replicas_.comm;
    return {
        TUTTI_ERR_PEER_LOST,
        cause.rank,
        -1,
        fmt::format("{}; the trainer goes on with {} of {} ranks, this one as rank {}",
                    without_advice(cause.message), comm.size(), after.ranks_before, comm.rank()),
        false,
        after.between_steps ? "repeat all that the program has done since the last finished step"
                            : fmt::format("{} again", repeat)};
}

Result<> Steps::run_micro_batches(RunContext& context) {
    if (settings_.uneven) {
        TRAINER_ASSIGN(const SampleCount count,
                       count_samples(replicas_, settings_.micro_batches, context.samples));
        if (count.total == 0) return {};
        context.total = count.total;
        if (sync_) sync_->computed().set_root(count.first_replica);
    }
    for (int m = 0; m < settings_.micro_batches; ++m) {
        context.micro = m;
        const bool is_last = m + 1 == settings_.micro_batches;
        TRAINER_TRY(executor_->run(is_last ? plan_.last : plan_.micro, context));
    }
    return {};
}

Result<> Steps::begin() {
    TRAINER_TRY(readiness_.check());
    if (!stream_)
        return invalid("options.external_autograd is not set")
            .advice("set options.external_autograd, or call tutti_trainer_step instead");
    if (stream_->in_step())
        return invalid("the previous step is not finished")
            .advice("call tutti_trainer_finish before the next tutti_trainer_begin");
    if (recovery_) TRAINER_TRY(readiness_.end_after(recovery_->take()));
    for (const Buffer& buffer : recorder_.buffers())
        if (buffer.kind == TUTTI_GRADIENT)
            TRAINER_TRY(readiness_.end_after(
                replicas_.device(buffer.device).zero(buffer.data, buffer.bytes)));
    stream_->begin({.iteration = iteration_.value()});
    return {};
}

Result<> Steps::ready(int device, const std::string& parameter) {
    if (!stream_ || !stream_->in_step())
        return invalid("the gradient of '{}' was reported ready outside of a step", parameter)
            .advice(
                "call tutti_trainer_grad_ready between tutti_trainer_begin and "
                "tutti_trainer_finish");
    TRAINER_ASSIGN(const Buffer* const buffer, recorder_.look_up(device, parameter));
    if (buffer->kind != TUTTI_PARAMETER)
        return invalid("buffer '{}' is not a parameter", buffer->full_name())
            .advice("pass the name of a buffer of kind TUTTI_PARAMETER");
    if (buffer->gradient == none)
        return invalid("'{}' has no gradient: the trainer has no update builder",
                       buffer->full_name())
            .advice("set spec.update in tutti_parallelize");
    return stream_->ready(buffer->gradient, parameter);
}

Result<> Steps::finish() {
    if (!stream_ || !stream_->in_step())
        return invalid("no step has begun").advice("call tutti_trainer_begin before");
    const Result<> done = contain([&]() -> Result<> {
        TRAINER_TRY(stream_->finish());
        return executor_->run(plan_.last, {.iteration = iteration_.value()});
    });
    if (done) return count_step(0);
    TRAINER_ASSIGN(const AfterLoss after, recover_from(done.error(), false));
    if (after.has_finished) return {};
    return tl::unexpected<Error>(
        error_to_repeat(done.error(), after, "begin the step with tutti_trainer_begin"));
}

}  // namespace tutti::trainer
