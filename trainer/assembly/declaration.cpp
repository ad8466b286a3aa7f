#include "trainer/assembly/declaration.h"

#include <algorithm>

#include "trainer/base/boundary.h"
#include "trainer/plan/backward.h"

namespace tutti::trainer {
namespace {

const char* builder_name(BuilderPhase phase) {
    return phase == BuilderPhase::input     ? "input builder"
           : phase == BuilderPhase::forward ? "forward builder"
                                            : "update builder";
}

// Runs builders, one at a time. A builder's failure is the last error of its calls.
class Builders {
public:
    Builders(const tutti_parallelize_spec& spec, const TrainerSettings& settings,
             const Replicas& replicas, ModelRecorder& recorder)
        : spec_(spec), settings_(settings), replicas_(replicas), recorder_(recorder) {}

    Result<> run(BuilderPhase phase, int device) {
        tutti_model model{.recorder = &recorder_,
                          .device = device,
                          .replica = replicas_.number(device),
                          .replicas = replicas_.count(),
                          .micro_batches = settings_.micro_batches,
                          .phase = phase,
                          .builder = builder_name(phase),
                          .scopes = {}};
        tutti_losses losses{.model = &model, .list = {}};
        last_error() = {TUTTI_OK, -1, -1, {}};
        const Result<> built = contain([&]() -> Result<> {
            const tutti_status status = call(model, losses);
            if (status == TUTTI_OK) return {};
            const std::string& why = last_error().message;
            return fail(status, "{}", why.empty() ? tutti_status_string(status) : why.c_str());
        });
        if (!built)
            return fail(built.error().status, "the {} of scope device_{} failed: {}", model.builder,
                        device, built.error().message)
                .advice("correct the {}", model.builder);
        if (phase != BuilderPhase::forward) return {};
        if (losses.list.empty() && !settings_.external)
            return invalid("the forward builder of scope device_{} added no loss", device)
                .advice(
                    "call tutti_losses_add in the forward builder, or set "
                    "options.external_autograd");
        recorder_.losses.push_back(std::move(losses.list));
        return {};
    }

private:
    tutti_status call(tutti_model& model, tutti_losses& losses) const {
        const double scale = settings_.mean_scale(replicas_.count());
        const bool of_rate = settings_.scale_learning_rate;
        switch (model.phase) {
            case BuilderPhase::input:
                return spec_.input(&model, spec_.user);
            case BuilderPhase::forward:
                return spec_.forward(&model, of_rate ? 1 : scale, &losses, spec_.user);
            case BuilderPhase::update:
                return spec_.update(&model, of_rate ? scale : 1, spec_.user);
        }
        return TUTTI_ERR_INVALID;
    }

    const tutti_parallelize_spec& spec_;
    const TrainerSettings& settings_;
    const Replicas& replicas_;
    ModelRecorder& recorder_;
};

// A checkpoint needs the counter of steps even if the update builder does not declare it, or
// declares it in a scope.
Result<> declare_iteration(ModelRecorder& recorder) {
    for (int d = 0; d < recorder.devices(); ++d) {
        const int found = recorder.find(d, iteration_name);
        if (found != none && !recorder.buffer(found).counts_steps)
            return invalid("buffer '{}' has the name of the trainer's counter of steps",
                           recorder.buffer(found).full_name())
                .advice("declare it with tutti_model_iteration, or give it another name");
        if (found == none)
            TRAINER_TRY(recorder.add(Buffer{.name = iteration_name,
                                            .device = d,
                                            .kind = TUTTI_STATE,
                                            .dtype = TUTTI_INT64,
                                            .bytes = sizeof(int64_t),
                                            .shape = {1},
                                            .counts_steps = true}));
    }
    return {};
}

}  // namespace

Result<> declare_model(const tutti_parallelize_spec& spec, const TrainerSettings& settings,
                       const Replicas& replicas, ModelRecorder& recorder) {
    if (!spec.forward)
        return invalid("spec.forward is NULL: the model has no forward builder")
            .advice("set spec.forward");
    Builders builders(spec, settings, replicas, recorder);
    for (int d = 0; d < replicas.local(); ++d) {
        if (spec.input) TRAINER_TRY(builders.run(BuilderPhase::input, d));
        TRAINER_TRY(builders.run(BuilderPhase::forward, d));
    }
    if (!spec.update) return {};
    TRAINER_TRY(declare_gradients(recorder, settings.external));
    for (int d = 0; d < replicas.local(); ++d) TRAINER_TRY(builders.run(BuilderPhase::update, d));
    return declare_iteration(recorder);
}

Result<> complete_settings(TrainerSettings& settings, const Replicas& replicas) {
    constexpr int usual_rings = 2;
    const int there = replicas.comm.rings();
    if (settings.rings > there)
        return invalid("options.rings is {}, but the communicator has {} rings", settings.rings,
                       there)
            .advice("set options.rings to 0 to {}, or TUTTI_NRINGS to {} on every rank", there,
                    settings.rings);
    if (settings.rings == 0) settings.rings = std::min(usual_rings, there);
    if (settings.threads == 0)
        settings.threads = default_threads(
            replicas.local(),
            std::ranges::all_of(replicas.devices, [](auto* d) { return d->is_cpu(); }),
            replicas.comm.local_size());
    return {};
}

}  // namespace tutti::trainer
