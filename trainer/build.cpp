// From builders to checked declarations, the same on every rank or an error on every rank.
#include <algorithm>
#include <array>
#include <limits>
#include <sstream>

#include "trainer/base/boundary.h"
#include "trainer/plan/backward.h"
#include "trainer/plan/sanity.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;

namespace {

Result<std::vector<Device*>> devices_of(const tutti_parallelize_spec& spec) {
    if (spec.device_count < 1 || !spec.devices)
        return invalid("{} devices; at least one is needed", spec.devices ? spec.device_count : 0);
    std::vector<Device*> list(spec.devices, spec.devices + spec.device_count);
    for (std::size_t d = 0; d < list.size(); ++d)
        if (!list[d]) return invalid("devices[{}] is NULL", d);
    return list;
}

const char* builder_name(Phase phase) {
    return phase == Phase::input     ? "input builder"
           : phase == Phase::forward ? "forward builder"
                                     : "update builder";
}

// The first line in which two texts differ, from either.
std::string difference(const std::string& mine, const std::string& first) {
    std::istringstream a(mine), b(first);
    std::string x, y;
    for (;;) {
        const bool more_x = static_cast<bool>(std::getline(a, x));
        const bool more_y = static_cast<bool>(std::getline(b, y));
        if (!more_x && !more_y) return "";
        if (!more_x) x = "nothing";
        if (!more_y) y = "nothing";
        if (x != y) return fmt::format("{} here, {} on rank 0", x, y);
    }
}

}  // namespace

tutti_trainer::tutti_trainer(Settings settings, std::vector<Device*> devices, Comm comm,
                             bool trains)
    : settings_(settings),
      devices_(std::move(devices)),
      comm_(std::move(comm)),
      recorder_(static_cast<int>(devices_.size())),
      trains_(trains),
      collectives_(comm_, devices_, settings_.fixed_order),
      engine_(recorder_, devices_, comm_, collectives_, tasks_) {}

Result<std::unique_ptr<tutti_trainer>> tutti_trainer::build(const tutti_parallelize_spec& spec) {
    // Before anything is refused: all ranks make the copy.
    TRAINER_ASSIGN(Comm comm, Comm::copy_of(spec.comm));
    const Result<Settings> settings = settings_of(spec.options);
    Result<std::vector<Device*>> devices =
        settings ? devices_of(spec) : tl::unexpected<Error>(settings.error());
    if (!devices) {
        // The others hear of it where they agree on what was declared.
        (void)agree(comm, 0, tl::unexpected<Error>(devices.error()));
        return tl::unexpected<Error>(std::move(devices).error());
    }
    std::unique_ptr<tutti_trainer> made(
        new tutti_trainer(*settings, *std::move(devices), std::move(comm), spec.update != nullptr));
    tutti_trainer& self = *made;
    const Result<> built = contain([&]() -> Result<> {
        TRAINER_TRY(self.fit_settings());
        TRAINER_TRY(self.declare(spec));
        TRAINER_TRY(check_sanity(self.recorder_));
        return self.assemble();
    });
    TRAINER_TRY(agree(self.comm_, self.devices(), built));
    TRAINER_TRY(self.check_ranks_alike());
    TRAINER_TRY(self.number_rows());
    return made;
}

// What the caller left open depends on what there is.
Result<> tutti_trainer::fit_settings() {
    constexpr int usual_rings = 2;
    const int there = comm_.rings();
    if (settings_.rings > there)
        return invalid("options.rings is {}; the communicator has {} (TUTTI_NRINGS)",
                       settings_.rings, there);
    if (settings_.rings == 0) settings_.rings = std::min(usual_rings, there);
    if (settings_.threads == 0)
        settings_.threads = default_threads(
            devices(), std::ranges::all_of(devices_, [](auto* d) { return d->is_cpu(); }),
            comm_.local_size());
    return {};
}

Result<> tutti_trainer::run_builder(Phase phase, int device, const tutti_parallelize_spec& spec) {
    tutti_model model{.recorder = &recorder_,
                      .device = device,
                      .replica = comm_.rank() * devices() + device,
                      .replicas = replicas(),
                      .micro_batches = settings_.micro_batches,
                      .phase = phase,
                      .builder = builder_name(phase),
                      .scopes = {}};
    tutti_losses losses{.model = &model, .list = {}};
    last_error() = {TUTTI_OK, -1, -1, {}};
    const Result<> built = contain([&]() -> Result<> {
        tutti_status status = TUTTI_OK;
        if (phase == Phase::input)
            status = spec.input(&model, spec.user);
        else if (phase == Phase::forward)
            status = spec.forward(&model, settings_.scale_learning_rate ? 1 : scale(), &losses,
                                  spec.user);
        else
            status = spec.update(&model, settings_.scale_learning_rate ? scale() : 1, spec.user);
        if (status == TUTTI_OK) return {};
        const std::string& why = last_error().message;
        return fail(status, "{}", why.empty() ? tutti_status_string(status) : why.c_str());
    });
    if (!built)
        return fail(built.error().status, "the {} of scope device_{} failed: {}", model.builder,
                    device, built.error().message);
    if (phase != Phase::forward) return {};
    if (losses.list.empty() && !settings_.external)
        return invalid("the forward builder of scope device_{} returned no list of losses", device);
    recorder_.losses.push_back(std::move(losses.list));
    return {};
}

Result<> tutti_trainer::declare(const tutti_parallelize_spec& spec) {
    if (!spec.forward) return invalid("there is no forward builder");
    for (int d = 0; d < devices(); ++d) {
        if (spec.input) TRAINER_TRY(run_builder(Phase::input, d, spec));
        TRAINER_TRY(run_builder(Phase::forward, d, spec));
    }
    if (!trains_) return {};
    TRAINER_TRY(declare_gradients(recorder_, settings_.external));
    for (int d = 0; d < devices(); ++d) TRAINER_TRY(run_builder(Phase::update, d, spec));
    return keep_iteration();
}

// A checkpoint has it also where the update does not need it, or has it in a scope.
Result<> tutti_trainer::keep_iteration() {
    for (int d = 0; d < devices(); ++d) {
        const int found = recorder_.find(d, iteration_name);
        if (found != none && !recorder_.buffer(found).counts_steps)
            return invalid(
                "'{}' is the name of the layer's counter of steps; use tutti_model_iteration or "
                "give it another name",
                recorder_.buffer(found).full_name());
        if (found == none)
            TRAINER_TRY(recorder_.add(Buffer{.name = iteration_name,
                                             .device = d,
                                             .kind = TUTTI_STATE,
                                             .dtype = TUTTI_INT64,
                                             .bytes = sizeof(iteration_),
                                             .shape = {1},
                                             .counts_steps = true}));
    }
    return {};
}

double tutti_trainer::scale() const {
    const int together = synchronous() ? replicas() : 1;
    return 1.0 / (static_cast<double>(together) * settings_.micro_batches);
}

// Every rank takes part, however it fared; the error is its own, or names a rank that has one.
Result<> tutti_trainer::agree(const Comm& comm, int devices, const Result<>& own) {
    if (comm.size() == 1) return own;
    const Result<> begun = begin_named(comm.get(), "parallelize");
    if (!begun) {
        TRAINER_TRY(own);
        return begun;
    }
    constexpr int64_t nobody = std::numeric_limits<int64_t>::max();
    std::array<int64_t, 2> least = {own ? nobody : comm.rank(), -devices};
    const Result<> heard = from_call(
        tutti_allreduce(comm.get(), least.data(), least.data(), 2, TUTTI_INT64, TUTTI_MIN),
        "agreement on what was declared");
    TRAINER_TRY(own);
    TRAINER_TRY(heard);
    if (least[0] != nobody)
        return tl::unexpected<Error>(
            {.status = TUTTI_ERR_INVALID,
             .rank = static_cast<int>(least[0]),
             .message = fmt::format("rank {} could not build its model; its own error says why",
                                    least[0])});
    int64_t fewest = devices;
    TRAINER_TRY(from_call(tutti_allreduce(comm.get(), &fewest, &fewest, 1, TUTTI_INT64, TUTTI_MIN),
                          "agreement on the number of devices"));
    if (fewest != -least[1])
        return invalid("ranks have from {} to {} devices, rank {} {}; give each as many", fewest,
                       -least[1], comm.rank(), devices);
    return {};
}

Result<> tutti_trainer::check_ranks_alike() {
    if (comm_.size() == 1) return {};
    const std::string mine = signature(settings_) + signature(recorder_, 0);
    auto length = static_cast<uint64_t>(mine.size());
    constexpr const char* doing = "comparison of models";
    TRAINER_TRY(from_call(tutti_broadcast(comm_.get(), &length, 1, TUTTI_UINT64, 0), doing));
    std::string first(length, '\0');
    if (comm_.rank() == 0) first = mine;
    TRAINER_TRY(
        from_call(tutti_broadcast(comm_.get(), first.data(), first.size(), TUTTI_UINT8, 0), doing));
    const std::string differs = difference(mine, first);
    constexpr int64_t nobody = std::numeric_limits<int64_t>::max();
    int64_t other = differs.empty() ? nobody : comm_.rank();
    TRAINER_TRY(
        from_call(tutti_allreduce(comm_.get(), &other, &other, 1, TUTTI_INT64, TUTTI_MIN), doing));
    if (!differs.empty())
        return invalid("rank {} and rank 0 declare different models: {}", comm_.rank(), differs);
    if (other != nobody)
        return invalid("rank {} declares another model than rank 0; its own error says where",
                       other);
    return {};
}
