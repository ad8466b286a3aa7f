// Values, pools and exchanges at the C boundary.
#include <algorithm>
#include <set>

#include "trainer/base/boundary.h"
#include "trainer/base/structs.h"
#include "trainer/parallel/pool.h"

using namespace tutti::trainer;            // NOLINT: the C functions are their face
using namespace tutti::trainer::parallel;  // NOLINT

struct tutti_parallel {
    tutti_pool* pool = nullptr;
    Exchange exchange;
    tutti_parallel(tutti_pool* of, const tutti_parallel_spec& spec) : pool(of), exchange(spec) {
        pool->attach(&exchange);
    }
    tutti_parallel(const tutti_parallel_spec& spec, int devices) : exchange(spec, devices) {}
    ~tutti_parallel() {
        if (pool) pool->detach(&exchange);
    }
};

namespace {

constexpr int most_devices = 4096;

std::shared_ptr<const void> owned(void (*release)(void*), void* owner) {
    if (!release) return nullptr;
    return {owner, [release](const void* p) { release(const_cast<void*>(p)); }};
}

Result<> check_devices(const char* function, int devices) {
    if (devices >= 1 && devices <= most_devices) return {};
    return fail(TUTTI_ERR_INVALID, "{}: {} devices; give 1 to {}", function, devices, most_devices);
}

Result<> check_array(const tutti_array& array) {
    if (tutti_dtype_size(array.dtype) == 0)
        return fail(TUTTI_ERR_INVALID, "tutti_value_create_array: {} is no element type",
                    array.dtype);
    if (array.dims < 0 || array.dims > TUTTI_ARRAY_DIMENSIONS)
        return fail(TUTTI_ERR_INVALID, "tutti_value_create_array: {} dimensions; at most {}",
                    array.dims, TUTTI_ARRAY_DIMENSIONS);
    std::size_t bytes = tutti_dtype_size(array.dtype);
    for (int d = 0; d < array.dims; ++d)
        if (array.shape[d] < 0 ||
            __builtin_mul_overflow(bytes, static_cast<std::size_t>(array.shape[d]), &bytes))
            return fail(TUTTI_ERR_INVALID,
                        "tutti_value_create_array: extent {} of axis {} makes no sense",
                        array.shape[d], d);
    if (!array.data && bytes > 0) return null_argument("tutti_value_create_array", "data");
    return {};
}

Result<> take_items(Node& node, const char* function, const tutti_value* const* items, int count) {
    if (count < 0) return fail(TUTTI_ERR_INVALID, "{}: {} items", function, count);
    if (count > 0 && !items) return null_argument(function, "items");
    for (int i = 0; i < count; ++i) {
        if (!items[i]) return fail(TUTTI_ERR_INVALID, "{}: item {} is NULL", function, i);
        node.items.push_back(*items[i]);
    }
    return {};
}

Result<tutti_parallel_spec> read_spec(const tutti_parallel_spec* given) {
    const tutti_parallel_spec defaults = TUTTI_PARALLEL_SPEC_INIT;
    TRAINER_ASSIGN(const tutti_parallel_spec spec,
                   read_struct(given, defaults, "TUTTI_PARALLEL_SPEC_INIT"));
    const bool summable =
        spec.dtype == TUTTI_FLOAT32 || spec.dtype == TUTTI_FLOAT64 || spec.dtype == TUTTI_INT64;
    if (!spec.combine && !summable)
        return fail(TUTTI_ERR_UNSUPPORTED,
                    "exchange: the built-in sum is of float32, float64 or int64; give an operator");
    return spec;
}

const Node* node_of(const tutti_value* value) {
    return value ? value->node.get() : nullptr;
}

}  // namespace

extern "C" {

tutti_status tutti_value_create_array(const tutti_array* array, void (*release)(void*), void* owner,
                                      tutti_value** value) {
    return guard([&]() -> Result<> {
        if (!array || !value)
            return null_argument("tutti_value_create_array", array ? "value" : "array");
        TRAINER_TRY(check_array(*array));
        *value = new tutti_value(make_value(
            {.kind = TUTTI_VALUE_ARRAY, .array = *array, .owner = owned(release, owner)}));
        return {};
    });
}

tutti_status tutti_value_create_plain(void* pointer, void (*release)(void*), tutti_value** value) {
    return guard([&]() -> Result<> {
        if (!value) return null_argument("tutti_value_create_plain", "value");
        *value = new tutti_value(make_value(
            {.kind = TUTTI_VALUE_PLAIN, .plain = pointer, .owner = owned(release, pointer)}));
        return {};
    });
}

tutti_status tutti_value_create_sequence(tutti_value_kind kind, const tutti_value* const* items,
                                         int count, tutti_value** value) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_value_create_sequence";
        if (!value) return null_argument(function, "value");
        if (kind != TUTTI_VALUE_LIST && kind != TUTTI_VALUE_TUPLE)
            return fail(TUTTI_ERR_INVALID, "{}: the kind is neither list nor tuple", function);
        Node node{.kind = kind};
        TRAINER_TRY(take_items(node, function, items, count));
        *value = new tutti_value(make_value(std::move(node)));
        return {};
    });
}

tutti_status tutti_value_create_map(const char* const* keys, const tutti_value* const* items,
                                    int count, tutti_value** value) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_value_create_map";
        if (!value) return null_argument(function, "value");
        if (count > 0 && !keys) return null_argument(function, "keys");
        Node node{.kind = TUTTI_VALUE_MAP};
        TRAINER_TRY(take_items(node, function, items, count));
        std::set<std::string> seen;
        for (int i = 0; i < count; ++i) {
            if (!keys[i]) return fail(TUTTI_ERR_INVALID, "{}: key {} is NULL", function, i);
            if (!seen.insert(keys[i]).second)
                return fail(TUTTI_ERR_INVALID, "{}: the key '{}' is there twice", function,
                            keys[i]);
            node.keys.emplace_back(keys[i]);
        }
        *value = new tutti_value(make_value(std::move(node)));
        return {};
    });
}

tutti_status tutti_value_share(const tutti_value* value, tutti_value** other) {
    return guard([&]() -> Result<> {
        if (!value || !other) return null_argument("tutti_value_share", value ? "other" : "value");
        *other = new tutti_value(*value);
        return {};
    });
}

void tutti_value_destroy(tutti_value* value) {
    delete value;
}

tutti_value_kind tutti_value_kind_of(const tutti_value* value) {
    return value->node->kind;
}

int tutti_value_count(const tutti_value* value) {
    const Node* node = node_of(value);
    return node ? static_cast<int>(node->items.size()) : 0;
}

const tutti_value* tutti_value_item(const tutti_value* value, int index) {
    if (index < 0 || index >= tutti_value_count(value)) return nullptr;
    return &value->node->items[static_cast<std::size_t>(index)];
}

const char* tutti_value_key(const tutti_value* value, int index) {
    const Node* node = node_of(value);
    if (!node || index < 0 || static_cast<std::size_t>(index) >= node->keys.size()) return nullptr;
    return node->keys[static_cast<std::size_t>(index)].c_str();
}

const tutti_array* tutti_value_array(const tutti_value* value) {
    const Node* node = node_of(value);
    return node && node->kind == TUTTI_VALUE_ARRAY ? &node->array : nullptr;
}

void* tutti_value_plain(const tutti_value* value) {
    const Node* node = node_of(value);
    return node ? node->plain : nullptr;
}

tutti_status tutti_split_and_load(const tutti_value* batch, int devices,
                                  const tutti_split_opts* opts, tutti_value** parts, int* used) {
    return guard([&]() -> Result<> {
        const char* function = "tutti_split_and_load";
        if (!batch) return null_argument(function, "batch");
        if (!parts || !used) return null_argument(function, parts ? "used" : "parts");
        TRAINER_TRY(check_devices(function, devices));
        TRAINER_ASSIGN(const SplitPlan plan, read_split(devices, opts));
        TRAINER_ASSIGN(const std::vector<tutti_value> found, split(*batch, plan));
        std::fill_n(parts, devices, nullptr);
        for (std::size_t d = 0; d < found.size(); ++d) parts[d] = new tutti_value(found[d]);
        *used = static_cast<int>(found.size());
        return {};
    });
}

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
                        "tutti_parallel_apply: {} replicas; the pool has {} devices", replicas,
                        pool->size());
        if (outputs) std::fill_n(outputs, replicas, nullptr);
        tutti_pool::Call call{.function = function, .user = user, .replicas = replicas};
        const tutti_apply_opts defaults = TUTTI_APPLY_OPTS_INIT;
        TRAINER_ASSIGN(call.opts, read_struct(opts, defaults, "TUTTI_APPLY_OPTS_INIT"));
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
        TRAINER_ASSIGN(const tutti_parallel_spec known, read_spec(spec));
        *state = new tutti_parallel(pool, known);
        return {};
    });
}

tutti_status tutti_parallel_create_free(int devices, const tutti_parallel_spec* spec,
                                        tutti_parallel** state) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_create_free", "state");
        TRAINER_TRY(check_devices("tutti_parallel_create_free", devices));
        TRAINER_ASSIGN(const tutti_parallel_spec known, read_spec(spec));
        *state = new tutti_parallel(known, devices);
        return {};
    });
}

void tutti_parallel_destroy(tutti_parallel* state) {
    delete state;
}

int tutti_parallel_size(tutti_parallel* state) {
    return state ? state->exchange.size() : 0;
}

tutti_status tutti_parallel_push(tutti_parallel* state, int device, const void* in, void* out,
                                 size_t bytes, uint64_t* round) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_push", "state");
        TRAINER_ASSIGN(const uint64_t number, state->exchange.push(device, in, out, bytes));
        if (round) *round = number;
        return {};
    });
}

tutti_status tutti_parallel_then(tutti_parallel* state, uint64_t round,
                                 void (*function)(void*, tutti_status), void* user) {
    return guard([&]() -> Result<> {
        if (!state || !function)
            return null_argument("tutti_parallel_then", state ? "function" : "state");
        state->exchange.then(round, function, user);
        return {};
    });
}

tutti_status tutti_parallel_pull(tutti_parallel* state, uint64_t round) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_pull", "state");
        return state->exchange.pull(round);
    });
}

tutti_status tutti_parallel_exchange(tutti_parallel* state, int device, const void* in, void* out,
                                     size_t bytes) {
    return guard([&]() -> Result<> {
        if (!state) return null_argument("tutti_parallel_exchange", "state");
        TRAINER_ASSIGN(const uint64_t round, state->exchange.push(device, in, out, bytes));
        return state->exchange.pull(round);
    });
}
}
