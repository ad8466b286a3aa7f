// A model on all devices: split the batch, run the replicas, leave the outputs on their devices.
#include <algorithm>

#include "trainer/base/boundary.h"
#include "trainer/base/structs.h"
#include "trainer/parallel/pool.h"

using namespace tutti::trainer;            // NOLINT: the C functions are its face
using namespace tutti::trainer::parallel;  // NOLINT

struct tutti_data_parallel {
    tutti_data_parallel_spec spec;
    SplitPlan plan;
    tutti_pool pool;
};

namespace {

/// Always returns a list, even of one item.
Result<tutti_value> apply(tutti_data_parallel& model, tutti_replica_fn function, void* user,
                          const std::vector<tutti_value>& inputs, int training, int recording,
                          bool evaluates) {
    tutti_pool::ApplyCall call{.function = function,
                               .user = user,
                               .inputs = {},
                               .replicas = static_cast<int>(inputs.size())};
    for (const tutti_value& input : inputs) call.inputs.push_back(&input);
    call.opts.training = training;
    call.opts.recording = recording;
    call.opts.sync = model.spec.sync;
    call.evaluates = evaluates;
    TRAINER_ASSIGN(const tutti_pool::Outputs outputs, model.pool.apply(call));
    ValueNode list{.kind = TUTTI_VALUE_LIST};
    for (std::size_t d = 0; d < outputs.size(); ++d) {
        if (!outputs[d])
            return fail_device(TUTTI_ERR_INVALID, static_cast<int>(d),
                               "data_parallel: the replica of device {} gave no output", d)
                .advice("call tutti_replica_set_output in the replica's function");
        list.items.push_back(*outputs[d]);
    }
    return make_value(std::move(list));
}

Result<std::vector<tutti_value>> pair_up(const ValueNode& outputs, const tutti_value& targets,
                                         SplitPlan plan) {
    // As the batch was split: to the devices that had a share of it.
    plan.devices = static_cast<int>(outputs.items.size());
    TRAINER_ASSIGN(const std::vector<tutti_value> parts, split(targets, plan));
    if (parts.size() != outputs.items.size())
        return fail(TUTTI_ERR_INVALID, "data_parallel: {} outputs, but targets for {} devices only",
                    outputs.items.size(), parts.size())
            .advice("pass as many targets as the batch of these outputs had samples");
    std::vector<tutti_value> pairs;
    for (std::size_t d = 0; d < parts.size(); ++d)
        pairs.push_back(
            make_value({.kind = TUTTI_VALUE_TUPLE, .items = {outputs.items[d], parts[d]}}));
    return pairs;
}

}  // namespace

extern "C" {

tutti_status tutti_data_parallel_create(const tutti_data_parallel_spec* spec,
                                        tutti_data_parallel** model) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_data_parallel_create";
        if (!spec || !model) return null_argument(function, spec ? "model" : "spec");
        const tutti_data_parallel_spec defaults = TUTTI_DATA_PARALLEL_SPEC_INIT;
        TRAINER_ASSIGN(const tutti_data_parallel_spec known,
                       read_struct("tutti_data_parallel_create: spec", spec, defaults,
                                   "TUTTI_DATA_PARALLEL_SPEC_INIT"));
        if (!known.model) return null_argument(function, "spec.model");
        TRAINER_TRY(check_devices(function, known.devices));
        TRAINER_ASSIGN(const SplitPlan plan, read_split("tutti_data_parallel_create: spec.split",
                                                        known.devices, known.split));
        *model = new tutti_data_parallel{known, plan, tutti_pool(known.devices)};
        return {};
    });
}

void tutti_data_parallel_destroy(tutti_data_parallel* model) {
    delete model;
}

tutti_pool* tutti_data_parallel_pool(tutti_data_parallel* model) {
    return model ? &model->pool : nullptr;
}

tutti_status tutti_data_parallel_forward(tutti_data_parallel* model, const tutti_value* batch,
                                         int training, int recording, tutti_value** outputs) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_data_parallel_forward";
        if (!model || !batch) return null_argument(function, model ? "batch" : "model");
        if (!outputs) return null_argument(function, "outputs");
        TRAINER_ASSIGN(const std::vector<tutti_value> parts, split(*batch, model->plan));
        TRAINER_ASSIGN(const tutti_value list, apply(*model, model->spec.model, model->spec.user,
                                                     parts, training, recording, !training));
        *outputs = new tutti_value(list);
        return {};
    });
}

tutti_status tutti_data_parallel_loss(tutti_data_parallel* model, tutti_replica_fn loss, void* user,
                                      const tutti_value* outputs, const tutti_value* targets,
                                      int recording, tutti_value** losses) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_data_parallel_loss";
        if (!model || !loss) return null_argument(function, model ? "loss" : "model");
        if (!outputs || !targets) return null_argument(function, outputs ? "targets" : "outputs");
        if (!losses) return null_argument(function, "losses");
        const auto devices = static_cast<std::size_t>(model->spec.devices);
        if (outputs->node->kind != TUTTI_VALUE_LIST || outputs->node->items.empty() ||
            outputs->node->items.size() > devices)
            return fail(TUTTI_ERR_INVALID,
                        "{}: outputs is not a list of 1 to {} items from a forward", function,
                        devices)
                .advice("pass the outputs of tutti_data_parallel_forward");
        TRAINER_ASSIGN(const std::vector<tutti_value> pairs,
                       pair_up(*outputs->node, *targets, model->plan));
        TRAINER_ASSIGN(const tutti_value list,
                       apply(*model, loss, user, pairs, 1, recording, !recording));
        *losses = new tutti_value(list);
        return {};
    });
}
}
