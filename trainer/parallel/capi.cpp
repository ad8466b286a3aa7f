// Pools and exchanges at the C boundary.
#include <algorithm>

#include "trainer/base/boundary.h"
#include "trainer/base/structs.h"
#include "trainer/parallel/pool.h"

using namespace tutti::trainer;            // NOLINT: the C functions are their face
using namespace tutti::trainer::parallel;  // NOLINT

namespace {

std::vector<Device*> devices_of(const tutti_parallel_spec& spec, int count) {
    if (!spec.devices) return {};
    return {spec.devices, spec.devices + count};
}

}  // namespace

struct tutti_parallel {
    tutti_pool* pool = nullptr;
    const std::shared_ptr<DeviceExchange> exchange;
    tutti_parallel(tutti_pool* of, const tutti_parallel_spec& spec)
        : pool(of), exchange(std::make_shared<DeviceExchange>(spec, devices_of(spec, of->size()))) {
        pool->attach(exchange);
    }
    tutti_parallel(const tutti_parallel_spec& spec, int devices)
        : exchange(std::make_shared<DeviceExchange>(spec, devices_of(spec, devices))) {
        exchange->begin(devices, true);
    }
    ~tutti_parallel() {
        if (pool) pool->detach(*exchange);
    }
};

namespace {

Result<tutti_parallel_spec> read_spec(const char* argument, const tutti_parallel_spec* given,
                                      int devices) {
    const tutti_parallel_spec defaults = TUTTI_PARALLEL_SPEC_INIT;
    TRAINER_ASSIGN(const tutti_parallel_spec spec,
                   read_struct(argument, given, defaults, "TUTTI_PARALLEL_SPEC_INIT"));
    const char* const name = tutti_dtype_name(spec.dtype);
    const bool summable =
        spec.dtype == TUTTI_FLOAT32 || spec.dtype == TUTTI_FLOAT64 || spec.dtype == TUTTI_INT64;
    if (!spec.combine && !summable)
        return fail(TUTTI_ERR_UNSUPPORTED, "exchange: the built-in sum does not support {}",
                    name ? name : "an unknown dtype")
            .advice("use float32, float64 or int64, or set spec.combine");
    if (spec.devices && (spec.combine || spec.dtype == TUTTI_INT64))
        return fail(TUTTI_ERR_UNSUPPORTED, "exchange: spec.devices does not support {}",
                    spec.combine ? "spec.combine" : "int64")
            .advice(
                "set spec.devices to NULL, or use the built-in sum of float32 or float64 (no "
                "spec.combine)");
    for (int d = 0; spec.devices && d < devices; ++d)
        if (!spec.devices[d])
            return fail(TUTTI_ERR_INVALID, "exchange: spec.devices[{}] is NULL", d)
                .advice("pass {} devices that are not NULL", devices);
    return spec;
}

}  // namespace

extern "C" {

tutti_status tutti_pool_create(int devices, tutti_pool** pool) {
    return guard([&]() -> Result<> {
        if (!pool) return null_argument("tutti_pool_create", "pool");
        TRAINER_TRY(check_devices("tutti_pool_create", devices));
        *pool = new tutti_pool(devices);
        return {};
    });
}

void tutti_pool_destroy(tutti_pool* pool) {
    delete pool;
}

int tutti_pool_size(const tutti_pool* pool) {
    return pool ? pool->size() : -1;
}

tutti_status tutti_parallel_apply(tutti_pool* pool, tutti_replica_fn function, void* user,
                                  const tutti_value* const* inputs, int replicas,
                                  const tutti_apply_opts* opts, tutti_value** outputs) {
    return guard([&]() -> Result<> {
        if (!pool || !function)
            return null_argument("tutti_parallel_apply", pool ? "function" : "pool");
        if (replicas < 1 || replicas > pool->size())
            return fail(TUTTI_ERR_INVALID,
                        "tutti_parallel_apply: replicas is {}, but the pool has {} devices",
                        replicas, pool->size())
                .advice("pass 1 to {} replicas", pool->size());
        if (outputs) std::fill_n(outputs, replicas, nullptr);
        tutti_pool::ApplyCall call{.function = function, .user = user, .replicas = replicas};
        const tutti_apply_opts defaults = TUTTI_APPLY_OPTS_INIT;
        TRAINER_ASSIGN(call.opts, read_struct("tutti_parallel_apply: opts", opts, defaults,
                                              "TUTTI_APPLY_OPTS_INIT"));
        call.evaluates = call.opts.training == 0;
        if (inputs) call.inputs.assign(inputs, inputs + replicas);
        TRAINER_ASSIGN(tutti_pool::Outputs given, pool->apply(call));
        for (std::size_t d = 0; outputs && d < given.size(); ++d) outputs[d] = given[d].release();
        return {};
    });
}

int tutti_replica_device(const tutti_replica* replica) {
    return replica->device;
}
int tutti_replica_count(const tutti_replica* replica) {
    return replica->count;
}
int tutti_replica_training(const tutti_replica* replica) {
    return replica->flags.training;
}
int tutti_replica_recording(const tutti_replica* replica) {
    return replica->flags.recording;
}
const tutti_value* tutti_replica_input(const tutti_replica* replica) {
    return replica->input;
}
void tutti_replica_set_output(tutti_replica* replica, tutti_value* output) {
    replica->output.reset(output);
}
void tutti_replica_set_error(tutti_replica* replica, const char* text) {
    replica->error = text ? text : "";
}

tutti_status tutti_parallel_create(tutti_pool* pool, const tutti_parallel_spec* spec,
                                   tutti_parallel** state) {
    return guard([&]() -> Result<> {
        if (!pool || !state) return null_argument("tutti_parallel_create", pool ? "state" : "pool");
        TRAINER_ASSIGN(const tutti_parallel_spec known,
                       read_spec("tutti_parallel_create: spec", spec, pool->size()));
        *state = new tutti_parallel(pool, known);
        return {};
    });
}

tutti_status tutti_parallel_create_free(int devices, const tutti_parallel_spec* spec,
                                        tutti_parallel** state) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_create_free", "state");
        TRAINER_TRY(check_devices("tutti_parallel_create_free", devices));
        TRAINER_ASSIGN(const tutti_parallel_spec known,
                       read_spec("tutti_parallel_create_free: spec", spec, devices));
        *state = new tutti_parallel(known, devices);
        return {};
    });
}

void tutti_parallel_destroy(tutti_parallel* state) {
    delete state;
}

int tutti_parallel_size(tutti_parallel* state) {
    return state ? state->exchange->size() : 0;
}

tutti_status tutti_parallel_push(tutti_parallel* state, int device, const void* in, void* out,
                                 size_t bytes, uint64_t* round) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_push", "state");
        TRAINER_ASSIGN(const uint64_t number, state->exchange->push(device, in, out, bytes));
        if (round) *round = number;
        return {};
    });
}

tutti_status tutti_parallel_then(tutti_parallel* state, uint64_t round,
                                 void (*function)(void*, tutti_status), void* user) {
    return guard([&]() -> Result<> {
        if (!state || !function)
            return null_argument("tutti_parallel_then", state ? "function" : "state");
        state->exchange->then(round, function, user);
        return {};
    });
}

tutti_status tutti_parallel_pull(tutti_parallel* state, uint64_t round) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_pull", "state");
        return state->exchange->pull(round);
    });
}

tutti_status tutti_parallel_exchange(tutti_parallel* state, int device, const void* in, void* out,
                                     size_t bytes) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_exchange", "state");
        TRAINER_ASSIGN(const uint64_t round, state->exchange->push(device, in, out, bytes));
        return state->exchange->pull(round);
    });
}
}
