/**
 * @file trainer_parallel.hpp
 * @brief A thin layer over trainer_parallel.h for C++20: header only, replicas are lambdas, errors
 *        are tutti::Error with their device.
 *
 *     tutti::DataParallel model({.devices = 2, .model = [&](tutti::Replica& r) {
 *         return tutti::Value::array(forward(r.device(), r.input()), {samples, classes});
 *     }});
 *     tutti::Value outputs = model.forward(batch);
 *
 * The rules of trainer_parallel.h for threads, devices and failures hold here too.
 */
#ifndef TUTTI_TRAINER_PARALLEL_HPP
#define TUTTI_TRAINER_PARALLEL_HPP

#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/buffers.hpp"
#include "tutti/handles.hpp"
#include "tutti/trainer_errors.hpp"
#include "tutti/trainer_parallel.h"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// An array, a plain pointer, or a list, tuple or map of values. Copies share their contents.
class Value {
public:
    Value() = default;
    /// Takes over the handle.
    explicit Value(tutti_value* handle) : handle_(handle) {}
    Value(const Value& other) : Value(other ? shared(other.get()) : nullptr) {}
    Value(Value&&) = default;
    Value& operator=(Value other) {
        handle_ = std::move(other.handle_);
        return *this;
    }

    /// Owns the elements.
    template <Element T>
    static Value array(std::vector<T> elements, const std::vector<int64_t>& shape) {
        auto kept = std::make_unique<std::vector<T>>(std::move(elements));
        const tutti_array described = describe(kept->data(), kept->size(), dtype_of<T>, shape, -1);
        const auto release = [](void* owner) { delete static_cast<std::vector<T>*>(owner); };
        tutti_value* made = nullptr;
        detail::check_trainer(tutti_value_create_array(&described, release, kept.get(), &made));
        kept.release();
        return Value(made);
    }
    /// A view of elements that stay the caller's, on a device or (-1) in host memory.
    template <Element T>
    static Value view(std::span<T> elements, const std::vector<int64_t>& shape, int device = -1) {
        const tutti_array described =
            describe(elements.data(), elements.size(), dtype_of<T>, shape, device);
        tutti_value* made = nullptr;
        detail::check_trainer(tutti_value_create_array(&described, nullptr, nullptr, &made));
        return Value(made);
    }
    static Value plain(void* pointer) {
        tutti_value* made = nullptr;
        detail::check_trainer(tutti_value_create_plain(pointer, nullptr, &made));
        return Value(made);
    }
    static Value list(const std::vector<Value>& items) { return sequence(TUTTI_VALUE_LIST, items); }
    static Value tuple(const std::vector<Value>& items) {
        return sequence(TUTTI_VALUE_TUPLE, items);
    }
    static Value map(const std::vector<std::pair<std::string, Value>>& entries) {
        std::vector<const char*> keys;
        std::vector<const tutti_value*> items;
        for (const auto& [key, item] : entries) {
            keys.push_back(key.c_str());
            items.push_back(item.get());
        }
        tutti_value* made = nullptr;
        detail::check_trainer(tutti_value_create_map(keys.data(), items.data(),
                                                     static_cast<int>(items.size()), &made));
        return Value(made);
    }

    explicit operator bool() const { return handle_ != nullptr; }
    tutti_value_kind kind() const { return tutti_value_kind_of(get()); }
    /// The number of items of a list, tuple or map; 0 for others.
    int size() const { return handle_ ? tutti_value_count(get()) : 0; }
    /// The index-th item; empty if there is none.
    Value operator[](int index) const {
        const tutti_value* item = tutti_value_item(get(), index);
        return item ? Value(shared(item)) : Value();
    }
    Value operator[](const std::string& key) const {
        for (int i = 0; i < size(); ++i)
            if (const char* found = tutti_value_key(get(), i); found && key == found)
                return (*this)[i];
        return Value();
    }
    std::vector<int64_t> shape() const {
        const tutti_array* a = tutti_value_array(get());
        return a ? std::vector<int64_t>(a->shape, a->shape + a->dims) : std::vector<int64_t>();
    }
    /// The elements of an array of T in host memory.
    template <Element T>
    std::span<T> elements() const {
        const tutti_array* a = tutti_value_array(get());
        if (!a || a->dtype != dtype_of<T>)
            detail::refuse(
                std::string("value: it is not an array of ") + tutti_dtype_name(dtype_of<T>),
                "ask for the array's own type");
        std::size_t count = 1;
        for (int d = 0; d < a->dims; ++d) count *= static_cast<std::size_t>(a->shape[d]);
        return {static_cast<T*>(a->data), count};
    }
    const tutti_array* as_array() const { return tutti_value_array(get()); }
    void* as_plain() const { return tutti_value_plain(get()); }
    tutti_value* get() const { return handle_.get(); }
    tutti_value* release() { return handle_.release(); }

private:
    static tutti_value* shared(const tutti_value* value) {
        tutti_value* other = nullptr;
        detail::check_trainer(tutti_value_share(value, &other));
        return other;
    }
    static tutti_array describe(const void* data, std::size_t count, tutti_dtype dtype,
                                const std::vector<int64_t>& shape, int device) {
        tutti_array a{const_cast<void*>(data), dtype, static_cast<int>(shape.size()), {}, device};
        std::size_t wanted = 1;
        for (std::size_t d = 0; d < shape.size(); ++d) {
            wanted *= static_cast<std::size_t>(shape[d]);
            if (d < TUTTI_ARRAY_DIMENSIONS) a.shape[d] = shape[d];
        }
        if (wanted != count)
            detail::refuse("value: " + std::to_string(count) + " elements for a shape of " +
                               std::to_string(wanted),
                           "pass a shape of as many elements as the range");
        return a;
    }
    static Value sequence(tutti_value_kind kind, const std::vector<Value>& items) {
        std::vector<const tutti_value*> list;
        for (const Value& item : items) list.push_back(item.get());
        tutti_value* made = nullptr;
        detail::check_trainer(
            tutti_value_create_sequence(kind, list.data(), static_cast<int>(list.size()), &made));
        return Value(made);
    }
    detail::Handle<tutti_value, tutti_value_destroy> handle_;
};

/// The devices' shares of a batch: one for each device with samples. All get the plain values.
inline std::vector<Value> split_and_load(const Value& batch, int devices,
                                         tutti_split_opts opts = TUTTI_SPLIT_OPTS_INIT) {
    std::vector<tutti_value*> parts(devices > 0 ? static_cast<std::size_t>(devices) : 0);
    int used = 0;
    detail::check_trainer(tutti_split_and_load(batch.get(), devices, &opts, parts.data(), &used));
    return {parts.begin(), parts.begin() + used};
}

/// A running replica's view of its call: device, flags, input and output.
class Replica {
public:
    explicit Replica(tutti_replica* replica) : replica_(replica) {}
    int device() const { return tutti_replica_device(replica_); }
    int count() const { return tutti_replica_count(replica_); }
    bool training() const { return tutti_replica_training(replica_) != 0; }
    bool recording() const { return tutti_replica_recording(replica_) != 0; }
    /// Empty if the call had none.
    Value input() const {
        const tutti_value* given = tutti_replica_input(replica_);
        tutti_value* other = nullptr;
        if (given) detail::check_trainer(tutti_value_share(given, &other));
        return Value(other);
    }

private:
    tutti_replica* replica_;
};

/// A replica's work: its output, or an empty Value.
using ReplicaFunction = std::function<Value(Replica&)>;

namespace detail {
// A tutti::Error keeps its status through the C layer; of other exceptions it keeps the text.
inline tutti_status call_replica(tutti_replica* replica, void* user) {
    try {
        Replica r(replica);
        Value output = (*static_cast<const ReplicaFunction*>(user))(r);
        if (output) tutti_replica_set_output(replica, output.release());
        return TUTTI_OK;
    } catch (const Error& error) {
        tutti_replica_set_error(replica, error.what());
        return error.status();
    }
}
}  // namespace detail

/// Options of Pool::apply.
struct ApplyOptions {
    bool training = true;
    bool recording = true;
    bool sync = false;  ///< all at once, as exchanges and synchronised layers need
};

/// A persistent thread for each device. Move only.
class Pool {
public:
    explicit Pool(int devices) {
        tutti_pool* pool = nullptr;
        detail::check_trainer(tutti_pool_create(devices, &pool));
        own_.reset(pool);
        pool_ = pool;
    }
    /// Uses a pool whose owner, such as a DataParallel, keeps it alive.
    explicit Pool(tutti_pool* pool) : pool_(pool) {}

    int size() const { return tutti_pool_size(pool_); }
    /// Runs work on the first `replicas` devices; returns each replica's output, possibly empty.
    std::vector<Value> apply(int replicas, const ReplicaFunction& work,
                             const ApplyOptions& options = {}) {
        return run(nullptr, replicas, work, options);
    }
    /// Runs one replica for each input.
    std::vector<Value> apply(const std::vector<Value>& inputs, const ReplicaFunction& work,
                             const ApplyOptions& options = {}) {
        std::vector<const tutti_value*> list;
        for (const Value& input : inputs) list.push_back(input.get());
        return run(list.data(), static_cast<int>(list.size()), work, options);
    }
    tutti_pool* get() const { return pool_; }

private:
    std::vector<Value> run(const tutti_value* const* inputs, int replicas,
                           const ReplicaFunction& work, const ApplyOptions& options) {
        tutti_apply_opts opts = TUTTI_APPLY_OPTS_INIT;
        opts.training = options.training ? 1 : 0;
        opts.recording = options.recording ? 1 : 0;
        opts.sync = options.sync ? 1 : 0;
        std::vector<tutti_value*> outputs(replicas > 0 ? static_cast<std::size_t>(replicas) : 0);
        detail::check_trainer(tutti_parallel_apply(pool_, detail::call_replica,
                                                   const_cast<ReplicaFunction*>(&work), inputs,
                                                   replicas, &opts, outputs.data()));
        return {outputs.begin(), outputs.end()};
    }
    detail::Handle<tutti_pool, tutti_pool_destroy> own_;
    tutti_pool* pool_ = nullptr;
};

/// An exchange among a process's devices (advanced). Destroy it before its pool. Move only.
class ParallelState {
public:
    /// Reads every device's input and writes every device's output, in the order of devices.
    using Combine = std::function<void(std::span<const void* const> inputs,
                                       std::span<void* const> outputs, std::size_t bytes)>;

    /// A sum of dtype, or the result of Combine.
    ParallelState(Pool& pool, tutti_dtype dtype) : ParallelState(pool.get(), 0, dtype, {}) {}
    ParallelState(Pool& pool, Combine combine)
        : ParallelState(pool.get(), 0, TUTTI_FLOAT32, std::move(combine)) {}
    /// For one thread of the program's own per device.
    ParallelState(int devices, tutti_dtype dtype) : ParallelState(nullptr, devices, dtype, {}) {}

    int size() const { return tutti_parallel_size(get()); }
    /// Gives this device's contribution to its next round and the place for the result, of the same
    /// bytes. Both stay valid until the round is over. Never waits.
    template <InputBuffer In, Buffer Out>
    uint64_t push(int device, const In& in, Out&& out) {
        uint64_t round = 0;
        detail::check_trainer(tutti_parallel_push(get(), device, std::ranges::data(in),
                                                  std::ranges::data(out), bytes_of(in, out),
                                                  &round));
        return round;
    }
    void pull(uint64_t round) { detail::check_trainer(tutti_parallel_pull(get(), round)); }
    template <InputBuffer In, Buffer Out>
    void exchange(int device, const In& in, Out&& out) {
        detail::check_trainer(tutti_parallel_exchange(get(), device, std::ranges::data(in),
                                                      std::ranges::data(out), bytes_of(in, out)));
    }
    /// Calls function once the round is over, on the thread that ends it.
    void then(uint64_t round, std::function<void(tutti_status)> function) {
        Parts& parts = *parts_;
        Waiting* waiting = nullptr;
        {
            const std::lock_guard lock(parts.mutex);
            parts.waiting.push_back({&parts, {}, std::move(function)});
            waiting = &parts.waiting.back();
            waiting->self = std::prev(parts.waiting.end());
        }
        detail::check_trainer(tutti_parallel_then(get(), round, call_then, waiting));
    }
    tutti_parallel* get() const { return parts_->state.get(); }

private:
    struct Parts;
    struct Waiting {
        Parts* parts;
        std::list<Waiting>::iterator self;
        std::function<void(tutti_status)> function;
    };
    // The C layer's user pointers point here, so its address stays when the state is moved.
    struct Parts {
        Combine combine;
        std::mutex mutex;
        std::list<Waiting> waiting;
        detail::Handle<tutti_parallel, tutti_parallel_destroy> state;
    };

    ParallelState(tutti_pool* pool, int devices, tutti_dtype dtype, Combine combine)
        : parts_(std::make_unique<Parts>()) {
        parts_->combine = std::move(combine);
        tutti_parallel_spec spec = TUTTI_PARALLEL_SPEC_INIT;
        spec.dtype = dtype;
        if (parts_->combine) spec.combine = call_combine;
        spec.user = parts_.get();
        tutti_parallel* made = nullptr;
        detail::check_trainer(pool ? tutti_parallel_create(pool, &spec, &made)
                                   : tutti_parallel_create_free(devices, &spec, &made));
        parts_->state.reset(made);
    }
    static tutti_status call_combine(void* user, const void* const* inputs, void* const* outputs,
                                     int devices, std::size_t bytes) {
        const auto count = static_cast<std::size_t>(devices);
        static_cast<Parts*>(user)->combine({inputs, count}, {outputs, count}, bytes);
        return TUTTI_OK;
    }
    static void call_then(void* user, tutti_status status) {
        auto* waiting = static_cast<Waiting*>(user);
        Parts& parts = *waiting->parts;
        std::function<void(tutti_status)> function;
        {
            const std::lock_guard lock(parts.mutex);
            function = std::move(waiting->function);
            parts.waiting.erase(waiting->self);
        }
        function(status);
    }
    template <typename In, typename Out>
    static std::size_t bytes_of(const In& in, Out& out) {
        const std::size_t bytes = std::ranges::size(in) * sizeof(std::ranges::range_value_t<In>);
        if (bytes != std::ranges::size(out) * sizeof(std::ranges::range_value_t<Out>))
            detail::refuse("exchange: in and out differ in size", "pass two ranges of one size");
        return bytes;
    }
    std::unique_ptr<Parts> parts_;
};

/// A model on all devices. Move only.
class DataParallel {
public:
    struct Spec {
        int devices = 1;
        bool sync = false;  ///< for models with synchronised layers
        ReplicaFunction model = {};
        tutti_split_opts split = TUTTI_SPLIT_OPTS_INIT;
    };
    explicit DataParallel(Spec spec) : model_(std::make_unique<ReplicaFunction>(spec.model)) {
        tutti_data_parallel_spec c = TUTTI_DATA_PARALLEL_SPEC_INIT;
        c.devices = spec.devices;
        c.sync = spec.sync ? 1 : 0;
        c.model = *model_ ? detail::call_replica : nullptr;
        c.user = model_.get();
        c.split = &spec.split;
        tutti_data_parallel* made = nullptr;
        detail::check_trainer(tutti_data_parallel_create(&c, &made));
        handle_.reset(made);
    }
    /// The pool for exchanges and synchronised layers of the model.
    Pool pool() const { return Pool(tutti_data_parallel_pool(handle_.get())); }
    /// A list of outputs, each on its device, even for one device.
    Value forward(const Value& batch, bool training = true, bool recording = true) {
        tutti_value* outputs = nullptr;
        detail::check_trainer(
            tutti_data_parallel_forward(handle_.get(), batch.get(), training, recording, &outputs));
        return Value(outputs);
    }
    /// A list of losses; a replica's input is the tuple (output, target).
    Value loss(const ReplicaFunction& function, const Value& outputs, const Value& targets,
               bool recording = true) {
        tutti_value* losses = nullptr;
        detail::check_trainer(tutti_data_parallel_loss(
            handle_.get(), detail::call_replica, const_cast<ReplicaFunction*>(&function),
            outputs.get(), targets.get(), recording, &losses));
        return Value(losses);
    }
    tutti_data_parallel* get() const { return handle_.get(); }

private:
    std::unique_ptr<ReplicaFunction> model_;
    detail::Handle<tutti_data_parallel, tutti_data_parallel_destroy> handle_;
};

/// Batch-norm over the joined batch of all devices and hosts. Destroy it before its pool. Move
/// only.
class SyncBatchNorm {
public:
    struct Spec {
        std::size_t channels = 0;
        double epsilon = 1e-5;
        double momentum = 0.1;
        std::vector<void*> running_mean = {};  ///< an array a device; empty: none are kept
        std::vector<void*> running_var = {};
        tutti_comm* comm = nullptr;
        const tutti_bn_math* math = nullptr;  ///< null: float32 in the host's memory
    };
    /// rows × channels × inner elements.
    struct Shape {
        std::size_t rows = 0;
        std::size_t inner = 1;
    };
    SyncBatchNorm(const Pool& pool, const Spec& spec) {
        const auto devices = static_cast<std::size_t>(pool.size());
        for (const auto* list : {&spec.running_mean, &spec.running_var})
            if (!list->empty() && list->size() != devices)
                detail::refuse("sync_bn: running statistics of " + std::to_string(list->size()) +
                                   " devices, but the pool has " + std::to_string(devices),
                               "pass one array for each device of the pool");
        tutti_sync_bn_spec c = TUTTI_SYNC_BN_SPEC_INIT;
        c.channels = spec.channels;
        c.epsilon = spec.epsilon;
        c.momentum = spec.momentum;
        c.running_mean = spec.running_mean.empty() ? nullptr : spec.running_mean.data();
        c.running_var = spec.running_var.empty() ? nullptr : spec.running_var.data();
        c.comm = spec.comm;
        c.math = spec.math;
        tutti_sync_bn* made = nullptr;
        detail::check_trainer(tutti_sync_bn_create(pool.get(), &c, &made));
        handle_.reset(made);
    }
    /// gamma and beta may be null.
    void forward(const Replica& replica, const void* x, Shape shape, const void* gamma,
                 const void* beta, void* y) {
        detail::check_trainer(tutti_sync_bn_forward(handle_.get(), replica.device(),
                                                    replica.training(), x, shape.rows, shape.inner,
                                                    gamma, beta, y));
    }
    /// dgamma and dbeta are this device's share; they may be null.
    void backward(const Replica& replica, const void* x, const void* dy, Shape shape,
                  const void* gamma, void* dx, void* dgamma, void* dbeta) {
        detail::check_trainer(tutti_sync_bn_backward(handle_.get(), replica.device(), x, dy,
                                                     shape.rows, shape.inner, gamma, dx, dgamma,
                                                     dbeta));
    }
    uint64_t bytes() const { return tutti_sync_bn_bytes(handle_.get()); }
    tutti_sync_bn* get() const { return handle_.get(); }

private:
    detail::Handle<tutti_sync_bn, tutti_sync_bn_destroy> handle_;
};

}  // namespace cxx
}  // namespace tutti

#endif
