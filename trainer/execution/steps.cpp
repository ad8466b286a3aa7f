#include "trainer/execution/steps.h"

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
    RunContext context{.micro_batches = settings_.micro_batches, .iteration = iteration_.value()};
    context.loss_scale =
        settings_.scale_learning_rate ? 1 : settings_.mean_scale(replicas_.count());
    context.samples = samples;
    TRAINER_TRY(readiness_.end_after(contain([&] { return run_micro_batches(context); })));
    if (settings_.uneven && context.total == 0) return 0;
    ++completed_;
    if (sync_) TRAINER_TRY(iteration_.advance());
    return context.total;
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
    TRAINER_TRY(readiness_.end_after(contain([&]() -> Result<> {
        TRAINER_TRY(stream_->finish());
        return executor_->run(plan_.last, {.iteration = iteration_.value()});
    })));
    ++completed_;
    return iteration_.advance();
}

}  // namespace tutti::trainer
