// Values, pools, exchanges, batch-norm and the sharded layer.
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "errors/areas.h"
#include "errors/jobs.h"
#include "trainer/parallel/parallel_fixture.h"
#include "tutti/trainer_sharded.h"

namespace errors_test::parallel {
namespace {

using test::make_free;
using test::make_parallel;
using test::make_pool;

tutti_status create_array(const std::function<void(tutti_array&)>& change) {
    static float data[4];
    tutti_array array{data, TUTTI_FLOAT32, 1, {4}, -1};
    change(array);
    tutti_value* value = nullptr;
    return tutti_value_create_array(&array, nullptr, nullptr, &value);
}

void refuse_values(Ledger& ledger) {
    const auto take = [&](const char* what, tutti_status status, const char* names) {
        ledger.take_trainer(what, status, {.names = names});
    };
    const char* const array = "tutti_value_create_array";
    take("an array of no dtype", create_array([](tutti_array& a) { a.dtype = 99; }), array);
    take("an array of many dimensions", create_array([](tutti_array& a) { a.dims = 99; }), array);
    take("an array of a negative extent", create_array([](tutti_array& a) { a.shape[0] = -1; }),
         array);
    take("an array without data", create_array([](tutti_array& a) { a.data = nullptr; }), array);
    tutti_value* value = nullptr;
    const char* const sequence = "tutti_value_create_sequence";
    take("a sequence of no kind", tutti_value_create_sequence(TUTTI_VALUE_MAP, nullptr, 0, &value),
         sequence);
    take("a sequence of negative length",
         tutti_value_create_sequence(TUTTI_VALUE_LIST, nullptr, -1, &value), sequence);
    take("a sequence without its items",
         tutti_value_create_sequence(TUTTI_VALUE_LIST, nullptr, 2, &value), sequence);
    const test::Value plain = test::plain(nullptr);
    const tutti_value* items[] = {plain.get(), plain.get()};
    const tutti_value* gap[] = {plain.get(), nullptr};
    const char* const twice[] = {"a", "a"};
    take("a sequence with a gap", tutti_value_create_sequence(TUTTI_VALUE_LIST, gap, 2, &value),
         sequence);
    take("a map with a key twice", tutti_value_create_map(twice, items, 2, &value),
         "tutti_value_create_map");
    take("a map without keys", tutti_value_create_map(nullptr, items, 2, &value),
         "tutti_value_create_map");
}

void refuse_splits(Ledger& ledger) {
    const test::Value batch = test::array({1, 2, 3, 4, 5}, {5});
    const test::Value other = test::array({1, 2, 3}, {3});
    const test::Value empty = test::array({}, {0});
    const test::Value uneven = test::sequence({batch.get(), other.get()});
    std::array<tutti_value*, 8> parts{};
    int used = 0;
    const auto split = [&](const tutti_value* value, int devices,
                           const std::function<void(tutti_split_opts&)>& change) {
        tutti_split_opts opts = TUTTI_SPLIT_OPTS_INIT;
        change(opts);
        return tutti_split_and_load(value, devices, &opts, parts.data(), &used);
    };
    const auto take = [&](const char* what, tutti_status status,
                          tutti_status wanted = TUTTI_ERR_INVALID) {
        ledger.take_trainer(what, status, {wanted, "split_and_load"});
    };
    const auto nothing = [](tutti_split_opts&) {};
    take("a split among no devices", split(batch.get(), 0, nothing));
    take("a split along no axis", split(batch.get(), 2, [](tutti_split_opts& o) { o.axis = 3; }));
    take("a split of different numbers", split(uneven.get(), 2, nothing));
    take("a split of no samples", split(empty.get(), 2, nothing));
    take("a split that is to be even",
         split(batch.get(), 2, [](tutti_split_opts& o) { o.even = 1; }));
    take("a split's options of no size",
         split(batch.get(), 2, [](tutti_split_opts& o) { o.struct_size = 0; }));
    take("a split with half a device",
         split(batch.get(), 2, [](tutti_split_opts& o) { o.free = [](void*, int, void*) {}; }));
    take("a split on a device without memory",
         split(batch.get(), 2,
               [](tutti_split_opts& o) {
                   o.alloc = [](void*, int, size_t) -> void* { return nullptr; };
                   o.free = [](void*, int, void*) {};
                   o.copy = [](void*, int, void*, const void*, size_t, size_t, size_t) {
                       return TUTTI_OK;
                   };
               }),
         TUTTI_ERR_NO_MEMORY);
}

tutti_status do_nothing(tutti_replica*, void*) {
    return TUTTI_OK;
}

void refuse_pools(Ledger& ledger) {
    tutti_pool* none = nullptr;
    ledger.take_trainer("a pool of no devices", tutti_pool_create(0, &none),
                        {.names = "tutti_pool_create"});
    const test::Pool pool = make_pool(2);
    tutti_apply_opts opts = TUTTI_APPLY_OPTS_INIT;
    const auto apply = [&](tutti_replica_fn function, int replicas = 2) {
        return tutti_parallel_apply(pool.get(), function, nullptr, nullptr, replicas, &opts,
                                    nullptr);
    };
    ledger.take_trainer("more replicas than devices", apply(do_nothing, 3),
                        {.names = "tutti_parallel_apply"});
    ledger.take_trainer("a replica that fails", apply([](tutti_replica* r, void*) {
                            tutti_replica_set_error(r, "the matrix is singular");
                            return TUTTI_ERR_UNSUPPORTED;
                        }),
                        {TUTTI_ERR_UNSUPPORTED, "the matrix is singular"});
    ledger.take_trainer("a replica that throws", apply([](tutti_replica*, void*) -> tutti_status {
                            throw std::runtime_error("no such picture");
                        }),
                        {TUTTI_ERR_SYSTEM, "no such picture"});
    opts.struct_size = 0;
    ledger.take_trainer("options of no size", apply(do_nothing), {.names = "struct_size"});
}

void refuse_exchanges(Ledger& ledger) {
    const test::Pool pool = make_pool(2);
    tutti_parallel* made = nullptr;
    tutti_parallel_spec spec = TUTTI_PARALLEL_SPEC_INIT;
    spec.dtype = TUTTI_INT8;
    ledger.take_trainer("an exchange of no sum", tutti_parallel_create(pool.get(), &spec, &made),
                        {TUTTI_ERR_UNSUPPORTED, "exchange"});
    spec.dtype = TUTTI_INT64;
    tutti_device* devices[2] = {};
    spec.devices = devices;
    ledger.take_trainer("an exchange of integers on devices",
                        tutti_parallel_create(pool.get(), &spec, &made),
                        {TUTTI_ERR_UNSUPPORTED, "exchange"});
    spec.dtype = TUTTI_FLOAT32;
    ledger.take_trainer("an exchange of devices that are missing",
                        tutti_parallel_create(pool.get(), &spec, &made),
                        {.names = "spec.devices[0]"});
    const test::Parallel outside = make_parallel(pool.get());
    int64_t x = 1, y = 2;
    ledger.take_trainer("an exchange outside of a pool's call",
                        tutti_parallel_exchange(outside.get(), 0, &x, &x, sizeof x),
                        {.names = "exchange"});
    tutti_parallel_spec free_spec = TUTTI_PARALLEL_SPEC_INIT;
    free_spec.dtype = TUTTI_INT64;
    free_spec.timeout_ms = 50;
    const test::Parallel lonely = make_free(2, free_spec);
    ledger.take_trainer("an exchange of no device",
                        tutti_parallel_exchange(lonely.get(), 7, &x, &x, sizeof x),
                        {.names = "exchange"});
    ledger.take_trainer("an exchange that another device does not join",
                        tutti_parallel_exchange(lonely.get(), 0, &x, &x, sizeof x),
                        {TUTTI_ERR_TIMEOUT, "exchange"});
    const test::Parallel uneven = make_free(2, free_spec);
    tutti_parallel_push(uneven.get(), 0, &x, &x, sizeof x, nullptr);
    ledger.take_trainer("an exchange of two sizes",
                        tutti_parallel_push(uneven.get(), 1, &y, &y, 4, nullptr),
                        {.names = "exchange"});
}

void refuse_layers(Ledger& ledger) {
    const test::Pool pool = make_pool(2);
    tutti_sync_bn* layer = nullptr;
    tutti_sync_bn_spec spec = TUTTI_SYNC_BN_SPEC_INIT;
    ledger.take_trainer("a batch-norm of no channels",
                        tutti_sync_bn_create(pool.get(), &spec, &layer),
                        {.names = "tutti_sync_bn_create"});
    spec.channels = 2;
    void* running[2] = {};
    spec.running_mean = running;
    ledger.take_trainer("a batch-norm with a mean and no variance",
                        tutti_sync_bn_create(pool.get(), &spec, &layer),
                        {.names = "tutti_sync_bn_create"});
    spec.running_mean = nullptr;
    tutti_bn_math math = *tutti_bn_math_host();
    math.sums = nullptr;
    spec.math = &math;
    ledger.take_trainer("a batch-norm whose arithmetic lacks a function",
                        tutti_sync_bn_create(pool.get(), &spec, &layer),
                        {.names = "tutti_sync_bn_create"});
    spec.math = nullptr;
    test::ok(tutti_sync_bn_create(pool.get(), &spec, &layer));
    const test::SyncBn owned(layer);
    float x[4] = {}, y[4] = {};
    ledger.take_trainer("a batch-norm on no device",
                        tutti_sync_bn_forward(layer, 9, 0, x, 2, 1, nullptr, nullptr, y),
                        {.names = "sync_bn"});
    ledger.take_trainer("a batch-norm in evaluation without statistics",
                        tutti_sync_bn_forward(layer, 0, 0, x, 2, 1, nullptr, nullptr, y),
                        {.names = "sync_bn"});
    ledger.take_trainer("a batch-norm's backward before its forward",
                        tutti_sync_bn_backward(layer, 0, x, x, 2, 1, nullptr, y, nullptr, nullptr),
                        {.names = "sync_bn"});
}

void refuse_models(Ledger& ledger) {
    tutti_data_parallel* model = nullptr;
    tutti_data_parallel_spec spec = TUTTI_DATA_PARALLEL_SPEC_INIT;
    ledger.take_trainer("a data-parallel model without a function",
                        tutti_data_parallel_create(&spec, &model), {.names = "spec.model"});
    spec.model = do_nothing;
    spec.devices = 0;
    ledger.take_trainer("a data-parallel model of no devices",
                        tutti_data_parallel_create(&spec, &model),
                        {.names = "tutti_data_parallel_create"});
    spec.devices = 1;
    test::ok(tutti_data_parallel_create(&spec, &model));
    const test::Value batch = test::array({1, 2}, {2});
    tutti_value* outputs = nullptr;
    ledger.take_trainer("a replica without an output",
                        tutti_data_parallel_forward(model, batch.get(), 1, 1, &outputs),
                        {.names = "device 0"});
    ledger.take_trainer(
        "outputs that forward did not give",
        tutti_data_parallel_loss(model, do_nothing, nullptr, batch.get(), batch.get(), 1, &outputs),
        {.names = "tutti_data_parallel_loss"});
    tutti_data_parallel_destroy(model);
}

tutti_status no_gemm(void*, int, int, size_t, size_t, size_t, const float*, const float*, float,
                     float*) {
    return TUTTI_OK;
}

void refuse_shards(Ledger& ledger) {
    int64_t first = 0, count = 0;
    ledger.take_trainer("a shard of no classes", tutti_shard_range(0, 2, 0, &first, &count),
                        {.names = "classes"});
    ledger.take_trainer("a shard past the last", tutti_shard_range(10, 2, 2, &first, &count),
                        {.names = "shard"});
    const int64_t labels[] = {3, 19};
    int64_t out[2] = {};
    ledger.take_trainer("a label that is no class", tutti_shard_index(labels, 2, 10, 2, 0, -1, out),
                        {.names = "label 19"});
    tutti_sharded_fc* layer = nullptr;
    tutti_sharded_fc_spec spec = TUTTI_SHARDED_FC_SPEC_INIT;
    ledger.take_trainer("a sharded layer without arithmetic",
                        tutti_sharded_fc_create(&spec, &layer),
                        {.names = "tutti_sharded_fc_create"});
    spec.math = tutti_fc_math_host();
    ledger.take_trainer("a sharded layer without a product", tutti_sharded_fc_create(&spec, &layer),
                        {.names = "spec.math"});
    tutti_fc_math math = *tutti_fc_math_host();
    math.gemm = no_gemm;
    spec.math = &math;
    ledger.take_trainer("a sharded layer of no features", tutti_sharded_fc_create(&spec, &layer),
                        {.names = "tutti_sharded_fc_create"});
    spec.features = 2;
    spec.classes = 10;
    test::ok(tutti_sharded_fc_create(&spec, &layer));
    float x[4] = {}, weight[20] = {};
    ledger.take_trainer("a sharded layer's backward before its forward",
                        tutti_sharded_fc_backward(layer, 1, weight, x, weight, nullptr),
                        {.names = "sharded_fc"});
    double loss = 0;
    const int64_t wrong[] = {1, 10};
    ledger.take_trainer("a sharded layer's label that is no class",
                        tutti_sharded_fc_forward(layer, x, wrong, 2, weight, nullptr, &loss),
                        {.names = "label 10"});
    tutti_sharded_fc_destroy(layer);
}

}  // namespace

void provoke_parallel(Ledger& ledger) {
    refuse_values(ledger);
    refuse_splits(ledger);
    refuse_pools(ledger);
    refuse_exchanges(ledger);
    refuse_layers(ledger);
    refuse_models(ledger);
    refuse_shards(ledger);
}

}  // namespace errors_test::parallel
