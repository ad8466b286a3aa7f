/**
 * @file trainer.hpp
 * @brief A thin layer over trainer.h for C++20: header only, functions are lambdas, errors are
 *        tutti::Error.
 *
 *     tutti::Trainer trainer({.devices = 2, .forward = [](tutti::Model& m, double scale) {
 *         auto w = m.parameter<float>("w", {10, 64});
 *         …
 *         m.operation("fc", {x, w}, {y}, forward, backward);
 *         return tutti::Losses{loss};
 *     }, .update = …});
 *     trainer.init_sync();
 *     trainer.step();
 *
 * The rules of trainer.h for threads, devices and failures hold here too.
 */
#ifndef TUTTI_TRAINER_HPP
#define TUTTI_TRAINER_HPP

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/buffers.hpp"
#include "tutti/checkpoint.hpp"
#include "tutti/handles.hpp"
#include "tutti/trainer.h"
#include "tutti/trainer_errors.hpp"

namespace tutti {
inline namespace cxx {  // as in buffers.hpp

/// A running operation's access to its buffers, on devices whose memory is the host's.
class Step {
public:
    explicit Step(tutti_step* step) : step_(step) {}
    /// A buffer that the operation declares. Null if it does not declare it: the step then fails
    /// with the buffer's name.
    template <typename T>
    T* data(tutti_buffer buffer) const {
        return static_cast<T*>(tutti_step_data(step_, buffer));
    }
    /// The buffer's gradient, to add to; null if there is none.
    template <typename T>
    T* gradient(tutti_buffer buffer) const {
        return static_cast<T*>(tutti_step_gradient(step_, buffer));
    }
    int device() const { return tutti_step_device(step_); }
    int micro_batch() const { return tutti_step_micro_batch(step_); }
    int64_t iteration() const { return tutti_step_iteration(step_); }
    double loss_scale() const { return tutti_step_loss_scale(step_); }
    int64_t samples() const { return tutti_step_samples(step_); }

private:
    tutti_step* step_;
};

using StepFunction = std::function<void(const Step&)>;
using Losses = std::vector<tutti_buffer>;
using Shape = std::vector<int64_t>;

/// One device's scope, while a builder runs.
class Model {
public:
    struct Functions {
        StepFunction forward, backward;
    };
    using Store = std::deque<Functions>;

    Model(tutti_model* model, Store& store) : model_(model), store_(&store) {}

    tutti_buffer buffer(const std::string& name, tutti_buffer_kind kind, tutti_dtype dtype,
                        const Shape& shape, uint32_t flags = 0) {
        const tutti_buffer_spec spec = spec_of(name, kind, dtype, shape, flags);
        tutti_buffer made = -1;
        detail::check_trainer(tutti_model_buffer(model_, &spec, &made));
        return made;
    }
    template <Element T>
    tutti_buffer parameter(const std::string& name, const Shape& shape, uint32_t flags = 0) {
        return buffer(name, TUTTI_PARAMETER, dtype_of<T>, shape, flags);
    }
    template <Element T>
    tutti_buffer computed(const std::string& name, const Shape& shape, uint32_t flags = 0) {
        return buffer(name, TUTTI_COMPUTED, dtype_of<T>, shape, flags);
    }
    template <Element T>
    tutti_buffer activation(const std::string& name, const Shape& shape, uint32_t flags = 0) {
        return buffer(name, TUTTI_ACTIVATION, dtype_of<T>, shape, flags);
    }
    template <Element T>
    tutti_buffer input(const std::string& name, const Shape& shape) {
        return buffer(name, TUTTI_INPUT, dtype_of<T>, shape);
    }
    template <Element T>
    tutti_buffer state(const std::string& name, const Shape& shape, uint32_t flags = 0) {
        return buffer(name, TUTTI_STATE, dtype_of<T>, shape, flags);
    }
    /// This replica's rows of a TUTTI_DISTRIBUTED table. total_rows as in tutti_buffer_spec.
    template <Element T>
    tutti_buffer shard(const std::string& name, const Shape& shape, int64_t total_rows = 0,
                       tutti_buffer_kind kind = TUTTI_PARAMETER) {
        tutti_buffer_spec spec = spec_of(name, kind, dtype_of<T>, shape, TUTTI_DISTRIBUTED);
        spec.total_rows = total_rows;
        tutti_buffer made = -1;
        detail::check_trainer(tutti_model_buffer(model_, &spec, &made));
        return made;
    }
    /// A sparse parameter's gradient, as tutti_model_sparse describes.
    struct Sparse {
        tutti_buffer parameter, values, rows, count;
    };
    template <Element T>
    Sparse sparse_parameter(const std::string& name, const Shape& shape, int64_t rows) {
        tutti_buffer_spec spec = spec_of(name, TUTTI_PARAMETER, dtype_of<T>, shape, TUTTI_SPARSE);
        spec.sparse_rows = rows;
        tutti_buffer made = -1;
        detail::check_trainer(tutti_model_buffer(model_, &spec, &made));
        return sparse(made);
    }
    Sparse sparse(tutti_buffer parameter) {
        Sparse s{parameter, -1, -1, -1};
        detail::check_trainer(tutti_model_sparse(model_, parameter, &s.values, &s.rows, &s.count));
        return s;
    }
    tutti_buffer find(const std::string& name) {
        tutti_buffer found = -1;
        detail::check_trainer(tutti_model_find(model_, name.c_str(), &found));
        return found;
    }
    Shape shape(tutti_buffer buffer) {
        tutti_buffer_info info{};
        info.struct_size = sizeof(info);
        detail::check_trainer(tutti_model_info(model_, buffer, &info));
        return {info.shape, info.shape + info.dimensions};
    }
    tutti_buffer gradient(tutti_buffer of) {
        tutti_buffer gradient = -1;
        detail::check_trainer(tutti_model_gradient(model_, of, &gradient));
        return gradient;
    }
    tutti_buffer learning_rate(double value) {
        tutti_buffer made = -1;
        detail::check_trainer(tutti_model_learning_rate(model_, value, &made));
        return made;
    }
    tutti_buffer iteration() {
        tutti_buffer made = -1;
        detail::check_trainer(tutti_model_iteration(model_, &made));
        return made;
    }

    void operation(const std::string& name, const std::vector<tutti_buffer>& reads,
                   const std::vector<tutti_buffer>& writes, StepFunction forward,
                   StepFunction backward = {}) {
        Functions& functions =
            store_->emplace_back(Functions{std::move(forward), std::move(backward)});
        tutti_operation_spec spec = TUTTI_OPERATION_SPEC_INIT;
        spec.name = name.c_str();
        spec.reads = reads.data();
        spec.read_count = reads.size();
        spec.writes = writes.data();
        spec.write_count = writes.size();
        spec.forward = functions.forward ? &call<&Functions::forward> : nullptr;
        spec.backward = functions.backward ? &call<&Functions::backward> : nullptr;
        spec.user = &functions;
        detail::check_trainer(tutti_model_operation(model_, &spec));
    }
    /// Everything but the name, in and out may be set in more.
    void collective(const std::string& name, tutti_collective_kind kind, tutti_buffer in,
                    tutti_buffer out, tutti_collective_spec more = TUTTI_COLLECTIVE_SPEC_INIT) {
        more.name = name.c_str();
        more.kind = kind;
        more.in = in;
        more.out = out;
        detail::check_trainer(tutti_model_collective(model_, &more));
    }
    /// from may be another device's: find("device_0/name").
    void copy(const std::string& name, tutti_buffer from, tutti_buffer to) {
        detail::check_trainer(tutti_model_copy(model_, name.c_str(), from, to));
    }
    void enter(const std::string& name) {
        detail::check_trainer(tutti_model_enter(model_, name.c_str()));
    }
    void leave() { detail::check_trainer(tutti_model_leave(model_)); }

    int device() const { return tutti_model_device(model_); }
    int replica() const { return tutti_model_replica(model_); }
    int replicas() const { return tutti_model_replicas(model_); }
    tutti_model* get() const { return model_; }

private:
    static tutti_buffer_spec spec_of(const std::string& name, tutti_buffer_kind kind,
                                     tutti_dtype dtype, const Shape& shape, uint32_t flags) {
        tutti_buffer_spec spec = TUTTI_BUFFER_SPEC_INIT;
        spec.name = name.c_str();
        spec.kind = kind;
        spec.dtype = dtype;
        spec.flags = flags;
        spec.dimensions = static_cast<int>(shape.size());
        for (std::size_t i = 0; i < shape.size() && i < TUTTI_MAX_DIMENSIONS; ++i)
            spec.shape[i] = shape[i];
        return spec;
    }
    // The C layer catches the function's exceptions and names the operation.
    template <StepFunction Functions::*which>
    static tutti_status call(tutti_step* step, void* user) {
        (static_cast<Functions*>(user)->*which)(Step(step));
        return TUTTI_OK;
    }

    tutti_model* model_;
    Store* store_;
};

/// The builders, devices and communicator of a Trainer.
struct TrainerSpec {
    int devices = 1;                              ///< devices of this host's cores
    std::vector<tutti_device*> own_devices = {};  ///< if not empty, used instead
    tutti_comm* comm = nullptr;                   ///< null: this process alone
    std::function<void(Model&)> input = {};
    std::function<Losses(Model&, double loss_scale)> forward = {};
    std::function<void(Model&, double lr_scale)> update = {};  ///< empty: forward only
    tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
    /// After a loss, the step is repeated with the ranks that are left
    /// (tutti_trainer_set_recovery).
    bool recover = false;
    /// With recover: sets this rank's shares, and returns its samples as for step, {} if the step
    /// has none. Empty: the step throws TUTTI_ERR_PEER_LOST, and the program calls it again.
    std::function<std::vector<int64_t>(int rank, int ranks)> resize = {};
};

/// A model on all local devices. Move only.
class Trainer {
public:
    explicit Trainer(TrainerSpec spec) : parts_(std::make_unique<Parts>()) {
        parts_->spec = std::move(spec);
        parts_->build();
    }

    void init_sync() { detail::check_trainer(tutti_trainer_init_sync(get())); }
    void sync() { detail::check_trainer(tutti_trainer_sync(get())); }
    void step() { detail::check_trainer(tutti_trainer_step(get(), nullptr, nullptr)); }
    /// samples: one number for each device's micro-batch. Returns the samples of all replicas; 0:
    /// all ran out.
    int64_t step(std::span<const int64_t> samples) {
        const TrainerSpec& spec = parts_->spec;
        const auto wanted =
            parts_->devices() * static_cast<std::size_t>(spec.options.micro_batches);
        if (samples.size() != wanted)
            detail::refuse("samples has " + std::to_string(samples.size()) + " numbers for " +
                               std::to_string(parts_->devices()) + " devices with " +
                               std::to_string(spec.options.micro_batches) + " micro-batches",
                           "pass " + std::to_string(wanted) + " numbers");
        int64_t total = 0;
        detail::check_trainer(tutti_trainer_step(get(), samples.data(), &total));
        return total;
    }
    void epoch_barrier() { detail::check_trainer(tutti_trainer_epoch_barrier(get())); }
    /// With spec.recover, after a loss in a collective of the program's on comm().
    void recover() { detail::check_trainer(tutti_trainer_recover(get())); }
    /// With spec.recover, between two steps: so many new processes join the ranks that train.
    void admit(int newcomers) { detail::check_trainer(tutti_trainer_admit(get(), newcomers)); }
    /// The communicator of the ranks that train, the trainer's own; a loss and admit() replace it.
    tutti_comm* comm() const { return tutti_trainer_comm(get()); }
    int64_t recoveries() const { return tutti_trainer_recoveries(get()); }
    std::size_t recovery_bytes() const { return tutti_trainer_recovery_bytes(get()); }
    void begin() { detail::check_trainer(tutti_trainer_begin(get())); }
    void grad_ready(int device, const std::string& parameter) {
        detail::check_trainer(tutti_trainer_grad_ready(get(), device, parameter.c_str()));
    }
    void finish() { detail::check_trainer(tutti_trainer_finish(get())); }

    /// Rows of a table that is sharded over all replicas; a row has row_elements.
    template <Element T>
    std::vector<T> sparse_pull(const std::string& parameter, int64_t total_rows,
                               const std::vector<int64_t>& rows, std::size_t row_elements) {
        const tutti_buffer_info table = find(0, parameter);
        std::size_t row_bytes = tutti_dtype_size(table.dtype);
        for (int i = 1; i < table.dimensions; ++i)
            row_bytes *= static_cast<std::size_t>(table.shape[i]);
        if (row_elements * sizeof(T) != row_bytes)
            detail::refuse("a row of '" + parameter + "' has " + std::to_string(row_bytes) +
                               " bytes, not " + std::to_string(row_elements) + " elements of " +
                               std::to_string(sizeof(T)),
                           "call sparse_pull with the parameter's type and elements of a row");
        std::vector<T> values(rows.size() * row_elements);
        detail::check_trainer(tutti_trainer_sparse_pull(get(), parameter.c_str(), total_rows,
                                                        rows.data(), rows.size(), values.data()));
        return values;
    }

    tutti_buffer_info find(int device, const std::string& name) const {
        tutti_buffer_info info{};
        info.struct_size = sizeof(info);
        detail::check_trainer(tutti_trainer_find(get(), device, name.c_str(), &info));
        return info;
    }
    /// A copy on the host.
    template <Element T>
    std::vector<T> read(int device, const std::string& name) const {
        std::vector<T> values(find(device, name).bytes / sizeof(T));
        detail::check_trainer(tutti_trainer_read(get(), device, name.c_str(), values.data(),
                                                 values.size() * sizeof(T)));
        return values;
    }
    template <Element T>
    void write(int device, const std::string& name, const std::vector<T>& values) {
        detail::check_trainer(tutti_trainer_write(get(), device, name.c_str(), values.data(),
                                                  values.size() * sizeof(T)));
    }
    /// The buffers that make up the state of a scope, as tutti_trainer_param lists them.
    std::vector<tutti_buffer_info> params(const std::string& scope = "") const {
        const int count = tutti_trainer_param_count(get(), scope.c_str());
        std::vector<tutti_buffer_info> list(count < 0 ? 1 : static_cast<std::size_t>(count));
        for (std::size_t i = 0; i < list.size(); ++i) {
            list[i].struct_size = sizeof(list[i]);
            detail::check_trainer(
                tutti_trainer_param(get(), scope.c_str(), static_cast<int>(i), &list[i]));
        }
        return list;
    }
    void save(const std::string& path) {
        detail::check_trainer(tutti_trainer_save(get(), path.c_str()));
    }
    void load(const std::string& path, RestoreOptions options = {}) {
        const tutti_checkpoint_opts opts = options.c_options();
        detail::check_trainer(tutti_trainer_load(get(), path.c_str(), &opts));
    }
    /// Adds the state to a list with the program's own texts or entries. After list.load(…), call
    /// sync().
    void add_to(Checkpoint& list) {
        detail::check_trainer(tutti_trainer_checkpoint(get(), list.get()));
    }

    tutti_trainer_counters counters() const {
        tutti_trainer_counters counters{};
        counters.struct_size = sizeof(counters);
        detail::check_trainer(tutti_trainer_count(get(), &counters));
        return counters;
    }
    uint64_t reduced_bytes(const std::string& parameter) const {
        uint64_t bytes = 0;
        detail::check_trainer(tutti_trainer_reduced_bytes(get(), parameter.c_str(), &bytes));
        return bytes;
    }
    tutti_trainer* get() const { return parts_->trainer.get(); }

private:
    // The C layer's user pointers point here, so its address stays when a Trainer is moved.
    struct Parts {
        TrainerSpec spec;
        Model::Store functions;
        std::vector<detail::Handle<tutti_device, tutti_device_destroy>> cpus;
        detail::Handle<tutti_trainer, tutti_trainer_destroy> trainer;

        std::size_t devices() const { return spec.own_devices.size() + cpus.size(); }
        void build() {
            for (int i = 0; spec.own_devices.empty() && i < spec.devices; ++i) {
                tutti_device* device = nullptr;
                detail::check_trainer(tutti_device_create_cpu(&device));
                cpus.emplace_back(device);
            }
            std::vector<tutti_device*> devices = spec.own_devices;
            for (const auto& cpu : cpus) devices.push_back(cpu.get());
            tutti_parallelize_spec c = TUTTI_PARALLELIZE_INIT;
            c.devices = devices.data();
            c.device_count = static_cast<int>(devices.size());
            c.comm = spec.comm;
            c.input = spec.input ? &input : nullptr;
            c.forward = spec.forward ? &forward : nullptr;
            c.update = spec.update ? &update : nullptr;
            c.user = this;
            c.options = &spec.options;
            tutti_trainer* made = nullptr;
            detail::check_trainer(tutti_parallelize(&c, &made));
            trainer.reset(made);
            if (!spec.recover) return;
            tutti_trainer_recovery recovery = TUTTI_TRAINER_RECOVERY_INIT;
            recovery.recover = 1;
            recovery.resize = spec.resize ? &resize : nullptr;
            recovery.user = this;
            detail::check_trainer(tutti_trainer_set_recovery(made, &recovery));
        }
        static tutti_status resize(void* user, int rank, int ranks, int64_t* samples) {
            auto* self = static_cast<Parts*>(user);
            const std::vector<int64_t> made = self->spec.resize(rank, ranks);
            const std::size_t wanted =
                samples
                    ? self->devices() * static_cast<std::size_t>(self->spec.options.micro_batches)
                    : 0;
            if (made.size() != wanted)
                detail::refuse("spec.resize returned " + std::to_string(made.size()) + " numbers",
                               "return " + std::to_string(wanted) + " numbers");
            std::copy(made.begin(), made.end(), samples);
            return TUTTI_OK;
        }
        // If a builder throws the Error of a failed call, its status and text are kept.
        template <typename Builder>
        static tutti_status run(const Builder& builder) {
            try {
                return builder();
            } catch (const Error& error) {
                if (std::string(error.what()) == tutti_trainer_last_error()) return error.status();
                throw;
            }
        }
        static tutti_status input(tutti_model* model, void* user) {
            return run([&] {
                auto* self = static_cast<Parts*>(user);
                Model m(model, self->functions);
                self->spec.input(m);
                return TUTTI_OK;
            });
        }
        static tutti_status forward(tutti_model* model, double scale, tutti_losses* losses,
                                    void* user) {
            return run([&] {
                auto* self = static_cast<Parts*>(user);
                Model m(model, self->functions);
                for (tutti_buffer loss : self->spec.forward(m, scale))
                    if (const tutti_status added = tutti_losses_add(losses, loss);
                        added != TUTTI_OK)
                        return added;
                return TUTTI_OK;
            });
        }
        static tutti_status update(tutti_model* model, double scale, void* user) {
            return run([&] {
                auto* self = static_cast<Parts*>(user);
                Model m(model, self->functions);
                self->spec.update(m, scale);
                return TUTTI_OK;
            });
        }
    };
    std::unique_ptr<Parts> parts_;
};

}  // namespace cxx
}  // namespace tutti

#endif
