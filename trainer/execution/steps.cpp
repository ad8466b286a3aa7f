#include "trainer/execution/steps.h"

#include "trainer/base/boundary.h"
#include "trainer/sync/samples.h"

namespace tutti::trainer {

void Steps::start(StepPlan plan, StepSync* sync) {
    plan_ = std::move(plan);
    sync_ = sync;
    const int in_flight = settings_.max_in_flight;
    if (settings_.external) {
        // No node of the programs writes gradients: the buckets stand alone, in their order, and
        // begin has set the gradients to zero.
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
    TRAINER_TRY(readiness_.check("tutti_trainer_step"));
    if (settings_.external)
        return invalid("options.external_autograd is set: call begin and finish");
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
    TRAINER_TRY(readiness_.check("tutti_trainer_begin"));
    if (!stream_) return invalid("options.external_autograd is not set: call tutti_trainer_step");
    if (stream_->in_step()) return invalid("tutti_trainer_begin before the last step's finish");
    for (const Buffer& buffer : recorder_.buffers())
        if (buffer.kind == TUTTI_GRADIENT)
            TRAINER_TRY(readiness_.end_after(
                replicas_.device(buffer.device).zero(buffer.data, buffer.bytes)));
    stream_->begin({.iteration = iteration_.value()});
    return {};
}

Result<> Steps::ready(int device, const std::string& parameter) {
    if (!stream_ || !stream_->in_step())
        return invalid("tutti_trainer_grad_ready of '{}' outside of begin and finish", parameter);
    TRAINER_ASSIGN(const Buffer* const buffer, recorder_.look_up(device, parameter));
    if (buffer->kind != TUTTI_PARAMETER)
        return invalid("'{}' is no parameter", buffer->full_name());
    if (buffer->gradient == none)
        return invalid("'{}' has no gradient: the trainer has no update builder",
                       buffer->full_name());
    return stream_->ready(buffer->gradient, parameter);
}

Result<> Steps::finish() {
    if (!stream_ || !stream_->in_step()) return invalid("tutti_trainer_finish without begin");
    TRAINER_TRY(readiness_.end_after(contain([&]() -> Result<> {
        TRAINER_TRY(stream_->finish());
        return executor_->run(plan_.last, {.iteration = iteration_.value()});
    })));
    ++completed_;
    return iteration_.advance();
}

}  // namespace tutti::trainer
