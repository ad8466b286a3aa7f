// From builders to checked declarations, the same on every rank or an error on every rank.
#include <algorithm>
#include <array>
#include <limits>
#include <sstream>

#include "trainer/plan/backward.h"
#include "trainer/plan/sanity.h"
#include "trainer/trainer.h"

using namespace tutti::training;

namespace {

std::vector<Device*> devices_of(const tutti_parallelize_spec& spec) {
    if (spec.device_count < 1 || !spec.devices)
        invalid("{} devices; at least one is needed", spec.devices ? spec.device_count : 0);
    std::vector<Device*> list(spec.devices, spec.devices + spec.device_count);
    for (std::size_t d = 0; d < list.size(); ++d)
        if (!list[d]) invalid("devices[{}] is NULL", d);
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

tutti_trainer::tutti_trainer(const tutti_parallelize_spec& spec)
    : settings_(settings_of(spec.options, spec.device_count)),
      devices_(devices_of(spec)),
      comm_(spec.comm),
      recorder_(static_cast<int>(devices_.size())),
      trains_(spec.update != nullptr),
      collectives_(comm_, devices_, settings_.fixed_order),
      engine_(recorder_, devices_, comm_, collectives_, tasks_) {
    std::string failure;
    tutti_status status = guard("tutti_parallelize", [&] {
        declare(spec);
        check_sanity(recorder_);
        assemble();
    });
    if (status != TUTTI_OK) failure = tutti_trainer_last_error();
    agree(failure);
    if (status != TUTTI_OK) throw Failure(status, failure);
    check_ranks_alike();
    number_rows();
}

void tutti_trainer::check_result(tutti_status status, const char* builder, int device) {
    if (status == TUTTI_OK) return;
    const std::string why = tutti_trainer_last_error();
    throw Failure(status, fmt::format("the {} of scope device_{} failed: {}", builder, device,
                                      why.empty() ? tutti_status_string(status) : why.c_str()));
}

void tutti_trainer::run_builder(Phase phase, int device, const tutti_parallelize_spec& spec) {
    tutti_model model{.recorder = &recorder_,
                      .device = device,
                      .replica = comm_.rank() * devices() + device,
                      .replicas = replicas(),
                      .micro_batches = settings_.micro_batches,
                      .phase = phase,
                      .builder = builder_name(phase),
                      .scopes = {}};
    tutti_losses losses{.model = &model, .list = {}};
    clear_last_error();
    tutti_status status = TUTTI_OK;
    try {
        if (phase == Phase::input)
            status = spec.input(&model, spec.user);
        else if (phase == Phase::forward)
            status = spec.forward(&model, settings_.scale_learning_rate ? 1 : scale(), &losses,
                                  spec.user);
        else
            status = spec.update(&model, settings_.scale_learning_rate ? scale() : 1, spec.user);
    } catch (const std::exception& error) {
        status = report(Failure(TUTTI_ERR_SYSTEM, error.what()));
    }
    check_result(status, model.builder, device);
    if (phase != Phase::forward) return;
    if (losses.list.empty() && !settings_.external)
        invalid("the forward builder of scope device_{} returned no list of losses", device);
    recorder_.losses.push_back(std::move(losses.list));
}

void tutti_trainer::declare(const tutti_parallelize_spec& spec) {
    if (!spec.forward) invalid("there is no forward builder");
    for (int d = 0; d < devices(); ++d) {
        if (spec.input) run_builder(Phase::input, d, spec);
        run_builder(Phase::forward, d, spec);
    }
    if (!trains_) return;
    declare_gradients(recorder_, settings_.external);
    for (int d = 0; d < devices(); ++d) run_builder(Phase::update, d, spec);
    keep_iteration();
}

// A checkpoint has it also where the update does not need it.
void tutti_trainer::keep_iteration() {
    for (int d = 0; d < devices(); ++d)
        if (recorder_.find(d, iteration_name) == none)
            recorder_.add(Buffer{.name = iteration_name,
                                 .device = d,
                                 .kind = TUTTI_STATE,
                                 .dtype = TUTTI_INT64,
                                 .bytes = sizeof(iteration_),
                                 .shape = {1}});
}

double tutti_trainer::scale() const {
    const int together = synchronous() ? replicas() : 1;
    return 1.0 / (static_cast<double>(together) * settings_.micro_batches);
}

// Either all ranks have a trainer or none has.
void tutti_trainer::agree(const std::string& failure) {
    if (comm_.size() == 1) return;
    std::array<int64_t, 2> failed_and_devices = {
        failure.empty() ? std::numeric_limits<int64_t>::max() : comm_.rank(), -devices()};
    std::array<int64_t, 2> least = failed_and_devices;
    check_call(tutti_allreduce(comm_.get(), least.data(), least.data(), 2, TUTTI_INT64, TUTTI_MIN),
               "agreement on what was declared");
    if (!failure.empty()) return;
    if (least[0] != std::numeric_limits<int64_t>::max())
        throw Failure(
            TUTTI_ERR_INVALID,
            fmt::format("rank {} could not build its model; its own error says why", least[0]));
    int64_t fewest = devices();
    check_call(tutti_allreduce(comm_.get(), &fewest, &fewest, 1, TUTTI_INT64, TUTTI_MIN),
               "agreement on the number of devices");
    if (fewest != -least[1])
        invalid("ranks have from {} to {} devices, rank {} {}; give each as many", fewest,
                -least[1], comm_.rank(), devices());
}

void tutti_trainer::check_ranks_alike() {
    if (comm_.size() == 1) return;
    const std::string mine = signature(recorder_, 0);
    auto length = static_cast<uint64_t>(mine.size());
    check_call(tutti_broadcast(comm_.get(), &length, 1, TUTTI_UINT64, 0), "comparison of models");
    std::string first(length, '\0');
    if (comm_.rank() == 0) first = mine;
    check_call(tutti_broadcast(comm_.get(), first.data(), first.size(), TUTTI_UINT8, 0),
               "comparison of models");
    const std::string differs = difference(mine, first);
    int64_t other = differs.empty() ? std::numeric_limits<int64_t>::max() : comm_.rank();
    check_call(tutti_allreduce(comm_.get(), &other, &other, 1, TUTTI_INT64, TUTTI_MIN),
               "comparison of models");
    if (!differs.empty())
        invalid("rank {} and rank 0 declare different models: {}", comm_.rank(), differs);
    if (other != std::numeric_limits<int64_t>::max())
        invalid("rank {} declares another model than rank 0; its own error says where", other);
}
