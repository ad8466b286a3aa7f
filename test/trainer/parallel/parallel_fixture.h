// Pools, exchanges and values that own their handles, and replicas that are lambdas.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tutti/trainer_parallel.h"

namespace tutti::test {

inline void ok(tutti_status status) {
    if (status != TUTTI_OK) throw std::runtime_error(tutti_trainer_last_error());
}

template <typename T, auto destroy>
struct OwnerGuard {
    struct End {
        void operator()(T* handle) const { destroy(handle); }
    };
    using Handle = std::unique_ptr<T, End>;
};
using Value = OwnerGuard<tutti_value, tutti_value_destroy>::Handle;
using Pool = OwnerGuard<tutti_pool, tutti_pool_destroy>::Handle;
using Parallel = OwnerGuard<tutti_parallel, tutti_parallel_destroy>::Handle;
using SyncBn = OwnerGuard<tutti_sync_bn, tutti_sync_bn_destroy>::Handle;

inline Pool make_pool(int devices) {
    tutti_pool* pool = nullptr;
    ok(tutti_pool_create(devices, &pool));
    return Pool(pool);
}
inline Parallel make_parallel(tutti_pool* pool, tutti_dtype dtype = TUTTI_INT64) {
    tutti_parallel_spec spec = TUTTI_PARALLEL_SPEC_INIT;
    spec.dtype = dtype;
    tutti_parallel* state = nullptr;
    ok(tutti_parallel_create(pool, &spec, &state));
    return Parallel(state);
}
inline Parallel make_free(int devices, tutti_parallel_spec spec) {
    tutti_parallel* state = nullptr;
    ok(tutti_parallel_create_free(devices, &spec, &state));
    return Parallel(state);
}

/// A value that owns a copy of the data.
inline Value array(std::vector<float> data, std::vector<int64_t> shape) {
    auto* kept = new std::vector<float>(std::move(data));
    tutti_array array{kept->data(), TUTTI_FLOAT32, static_cast<int>(shape.size()), {}, -1};
    std::copy(shape.begin(), shape.end(), array.shape);
    tutti_value* value = nullptr;
    ok(tutti_value_create_array(
        &array, [](void* p) { delete static_cast<std::vector<float>*>(p); }, kept, &value));
    return Value(value);
}
inline Value plain(void* pointer) {
    tutti_value* value = nullptr;
    ok(tutti_value_create_plain(pointer, nullptr, &value));
    return Value(value);
}
inline Value sequence(const std::vector<const tutti_value*>& items,
                      tutti_value_kind kind = TUTTI_VALUE_LIST) {
    tutti_value* value = nullptr;
    ok(tutti_value_create_sequence(kind, items.data(), static_cast<int>(items.size()), &value));
    return Value(value);
}
inline Value map(const std::vector<const char*>& keys,
                 const std::vector<const tutti_value*>& items) {
    tutti_value* value = nullptr;
    ok(tutti_value_create_map(keys.data(), items.data(), static_cast<int>(items.size()), &value));
    return Value(value);
}
inline std::vector<float> floats_of(const tutti_value* value) {
    const tutti_array& array = *tutti_value_array(value);
    std::size_t count = 1;
    for (int d = 0; d < array.dims; ++d) count *= static_cast<std::size_t>(array.shape[d]);
    const auto* data = static_cast<const float*>(array.data);
    return {data, data + count};
}
inline std::vector<int64_t> shape_of(const tutti_value* value) {
    const tutti_array& array = *tutti_value_array(value);
    return {array.shape, array.shape + array.dims};
}

using Work = std::function<tutti_status(tutti_replica*)>;
inline tutti_status call_work(tutti_replica* replica, void* user) {
    return (*static_cast<Work*>(user))(replica);
}

inline tutti_apply_opts flags(int sync, int training = 1, int recording = 1) {
    tutti_apply_opts opts = TUTTI_APPLY_OPTS_INIT;
    opts.sync = sync;
    opts.training = training;
    opts.recording = recording;
    return opts;
}

inline tutti_status apply(tutti_pool* pool, int replicas, const tutti_apply_opts& opts, Work work,
                          std::vector<Value>* outputs = nullptr) {
    std::vector<tutti_value*> given(static_cast<std::size_t>(replicas));
    const tutti_status status =
        tutti_parallel_apply(pool, call_work, &work, nullptr, replicas, &opts, given.data());
    std::vector<Value> owned;
    for (tutti_value* value : given) owned.emplace_back(value);
    if (outputs) *outputs = std::move(owned);
    return status;
}

inline bool error_says(const std::string& words) {
    return std::string(tutti_trainer_last_error()).find(words) != std::string::npos;
}

}  // namespace tutti::test
