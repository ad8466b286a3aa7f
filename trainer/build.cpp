// From builders to a trainer: the same model on every rank, or an error on every rank.
#include "trainer/assembly/agreement.h"
#include "trainer/assembly/declaration.h"
#include "trainer/assembly/step_programs.h"
#include "trainer/base/boundary.h"
#include "trainer/plan/sanity.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;

namespace {

constexpr std::size_t cache_line_bytes = 64;

Result<std::vector<Device*>> devices_of(const tutti_parallelize_spec& spec) {
    if (spec.device_count < 1 || !spec.devices)
        return invalid("spec.devices has {} devices", spec.devices ? spec.device_count : 0)
            .advice("pass one device or more");
    std::vector<Device*> list(spec.devices, spec.devices + spec.device_count);
    for (std::size_t d = 0; d < list.size(); ++d)
        if (!list[d])
            return invalid("spec.devices[{}] is NULL", d)
                .advice(
                    "pass devices that tutti_device_create or tutti_device_create_cpu returned");
    return list;
}

// The spec's settings, and its devices into replicas.
Result<TrainerSettings> read_spec(const tutti_parallelize_spec& spec, Replicas& replicas) {
    TRAINER_ASSIGN(TrainerSettings settings, settings_of(spec.options));
    TRAINER_ASSIGN(replicas.devices, devices_of(spec));
    TRAINER_TRY(complete_settings(settings, replicas));
    return settings;
}

MemoryOptions memory_options(const TrainerSettings& settings, bool trains) {
    return {.alignment = settings.check ? Checker::page_bytes() : cache_line_bytes,
            .shares = (settings.share_memory || !trains) && !settings.check,
            .sums = settings.fixed_order};
}

}  // namespace

tutti_trainer::tutti_trainer(const TrainerSettings& settings, Replicas replicas, bool trains)
    : settings_(settings),
      replicas_(std::move(replicas)),
      recorder_(replicas_.local()),
      memory_(recorder_, replicas_.devices, memory_options(settings_, trains)),
      tasks_(settings_.rings),
      collectives_(replicas_.comm, replicas_.devices, settings_.fixed_order),
      broadcast_(tasks_, collectives_, replicas_.comm),
      engine_(recorder_, replicas_.devices, replicas_.comm, collectives_, tasks_.all()),
      readiness_(replicas_.comm),
      steps_(settings_, recorder_, replicas_, engine_, readiness_),
      state_(recorder_, replicas_) {
    if (trains) step_sync_.emplace(settings_, recorder_, replicas_, memory_, tasks_);
}

Result<std::unique_ptr<tutti_trainer>> tutti_trainer::build(const tutti_parallelize_spec& spec) {
    // All ranks make the copy, before any of them may refuse its spec.
    TRAINER_ASSIGN(Comm comm, Comm::copy_of(spec.comm));
    Replicas replicas{.comm = std::move(comm), .devices = {}};
    const Result<TrainerSettings> settings = read_spec(spec, replicas);
    if (!settings) {
        // The other ranks get the failure in their own agree.
        (void)agree(replicas.comm, 0, tl::unexpected<Error>(settings.error()));
        return tl::unexpected<Error>(settings.error());
    }
    std::unique_ptr<tutti_trainer> made(
        new tutti_trainer(*settings, std::move(replicas), spec.update != nullptr));
    tutti_trainer& self = *made;
    const Comm& ranks = self.replicas_.comm;
    const Result<> built = contain([&]() -> Result<> {
        TRAINER_TRY(declare_model(spec, self.settings_, self.replicas_, self.recorder_));
        TRAINER_TRY(check_sanity(self.recorder_));
        return self.assemble();
    });
    TRAINER_TRY(agree(ranks, self.replicas_.local(), built));
    TRAINER_ASSIGN(const bool joins, compare_signatures(ranks, self.model_signature(), false));
    self.steps_.set_has_state(!joins);
    TRAINER_TRY(number_rows(self.recorder_, self.replicas_));
    return made;
}

std::string tutti_trainer::model_signature() const {
    return signature(settings_) + signature(recorder_, 0);
}

Result<StepPlan> tutti_trainer::make_programs() {
    const bool with_backward = step_sync_ && !settings_.external;
    TRAINER_ASSIGN(ComputeProgram compute,
                   make_compute_program(recorder_, replicas_, tasks_, with_backward));
    form_groups();
    StepPlan plan;
    if (settings_.micro_batches > 1) plan.micro = compute.program;
    plan.last = std::move(compute.program);
    if (step_sync_) {
        TRAINER_TRY(step_sync_->check());
        step_sync_->append_before_update(plan, compute.backward_begin);
        TRAINER_TRY(append_update(plan.last, recorder_, replicas_, tasks_));
        step_sync_->append_after_update(plan);
    }
    mark_zeroes(plan, recorder_, settings_.fixed_order);
    return plan;
}

void tutti_trainer::form_groups() {
    memory_.form_groups();
    if (step_sync_) memory_.form_buckets({settings_.bucket_bytes, settings_.first_bucket_bytes});
}

Result<> tutti_trainer::place_and_bind(const StepPlan& plan) {
    if (settings_.parameters_of) {
        if (step_sync_)
            return invalid("options.parameters_of is set for a model with an update builder")
                .advice("set options.parameters_of or spec.update to NULL");
        TRAINER_TRY(memory_.adopt_parameters(settings_.parameters_of->recorder()));
        readiness_.set_synchronised();
    }
    TRAINER_TRY(memory_.place(plan.last));
    tasks_.bind_buffers(recorder_);
    if (step_sync_) {
        TRAINER_TRY(step_sync_->allocate());
        step_sync_->bind();
    }
    if (!settings_.parameters_of) broadcast_.add_tasks(memory_.kept_groups());
    for (Task& task : tasks_.all()) TRAINER_TRY(collectives_.prepare(task));
    return {};
}

Result<> tutti_trainer::assemble() {
    TRAINER_ASSIGN(StepPlan plan, make_programs());
    TRAINER_TRY(place_and_bind(plan));
    steps_.start(std::move(plan), step_sync_ ? &*step_sync_ : nullptr);
    return {};
}
