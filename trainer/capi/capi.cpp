// The C boundary: exceptions and Results become statuses here.
#include <cstring>

#include "trainer/base/boundary.h"
#include "trainer/trainer.h"

using namespace tutti::trainer;

namespace {

Result<> need(const void* pointer, const char* what) {
    if (!pointer) return invalid("{} is NULL", what).advice("pass a pointer that is not NULL");
    return {};
}

template <typename T>
Result<> need_struct(const T* given, const char* what) {
    TRAINER_TRY(need(given, what));
    if (given->struct_size != sizeof(T))
        return invalid("{}.struct_size is {}, not {}", what, given->struct_size, sizeof(T))
            .advice("initialise it with the header's macro for this struct (TUTTI_…_INIT)");
    return {};
}

ErrorResult not_a_buffer(tutti_buffer handle) {
    return invalid("{} is not a buffer", handle)
        .advice("pass a handle that tutti_model_buffer or tutti_model_find returned");
}

Result<> need_functions(const tutti_device_functions& f) {
    const std::pair<bool, const char*> list[] = {
        {f.alloc != nullptr, "alloc"}, {f.free != nullptr, "free"},   {f.copy != nullptr, "copy"},
        {f.zero != nullptr, "zero"},   {f.axpby != nullptr, "axpby"}, {f.run != nullptr, "run"}};
    for (const auto& [there, name] : list)
        if (!there)
            return invalid("functions.{} is NULL", name)
                .advice("set alloc, free, copy, zero, axpby and run");
    return {};
}

Result<> describe(const Buffer& buffer, tutti_buffer_info* info) {
    TRAINER_TRY(need_struct(info, "info"));
    info->name = buffer.name.c_str();
    info->kind = buffer.kind;
    info->dtype = buffer.dtype;
    info->bytes = buffer.bytes;
    info->dimensions = static_cast<int>(buffer.shape.size());
    for (std::size_t i = 0; i < TUTTI_MAX_DIMENSIONS; ++i)
        info->shape[i] = i < buffer.shape.size() ? buffer.shape[i] : 0;
    info->flags = buffer.flags;
    info->data = buffer.data;
    info->total_rows = buffer.total_rows;
    info->first_row = buffer.first_row;
    info->own_rows = buffer.own_rows;
    return {};
}

const Buffer* nth(const tutti_trainer& trainer, int device, int index) {
    for (const Buffer& buffer : trainer.recorder().buffers())
        if (buffer.device == device && index-- == 0) return &buffer;
    return nullptr;
}

Result<> declare_state(tutti_model* model, const char* name, tutti_dtype dtype,
                       tutti_buffer* made) {
    TRAINER_TRY(need(model, "model"));
    TRAINER_TRY(need(made, "buffer"));
    tutti_buffer_spec spec = TUTTI_BUFFER_SPEC_INIT;
    spec.name = name;
    spec.kind = TUTTI_STATE;
    spec.dtype = dtype;
    spec.bytes = tutti_dtype_size(dtype);
    if (model->phase != BuilderPhase::update)
        return invalid("the {} declares '{}'", model->builder, name)
            .advice("declare it in the update builder");
    TRAINER_ASSIGN(*made, model->declare(spec));
    return {};
}

// Runs a call's body on a handle (trainer, model, ...) that must not be NULL.
template <typename T, typename Body>
tutti_status call(const char* function, T* object, const char* what, Body&& body) noexcept {
    return guard(function, [&]() -> Result<> {
        TRAINER_TRY(need(object, what));
        return body(*object);
    });
}

template <typename Body>
tutti_status on_model(const char* function, tutti_model* model, Body&& body) noexcept {
    return call(function, model, "model", std::forward<Body>(body));
}

template <typename T, typename Body>
tutti_status on_trainer(const char* function, T* trainer, Body&& body) noexcept {
    return call(function, trainer, "trainer", std::forward<Body>(body));
}

}  // namespace

tutti_status tutti_device_create(const tutti_device_functions* functions, void* user,
                                 tutti_device** device) {
    return guard(__func__, [&]() -> Result<> {
        TRAINER_TRY(need(device, "device"));
        TRAINER_TRY(need_struct(functions, "functions"));
        TRAINER_TRY(need_functions(*functions));
        *device = new tutti_device(*functions, user);
        return {};
    });
}

tutti_status tutti_device_create_cpu(tutti_device** device) {
    return guard(__func__, [&]() -> Result<> {
        TRAINER_TRY(need(device, "device"));
        *device = new tutti_device(cpu_functions(), nullptr);
        return {};
    });
}

void tutti_device_destroy(tutti_device* device) {
    delete device;
}

tutti_status tutti_model_buffer(tutti_model* model, const tutti_buffer_spec* spec,
                                tutti_buffer* buffer) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(need_struct(spec, "spec"));
        TRAINER_TRY(need(buffer, "buffer"));
        TRAINER_ASSIGN(*buffer, m.declare(*spec));
        return {};
    });
}

tutti_status tutti_model_find(tutti_model* model, const char* name, tutti_buffer* buffer) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(need(name, "name"));
        TRAINER_TRY(need(buffer, "buffer"));
        TRAINER_ASSIGN(*buffer, m.find(name));
        return {};
    });
}

tutti_status tutti_model_info(tutti_model* model, tutti_buffer buffer, tutti_buffer_info* info) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        if (!m.recorder->valid(buffer)) return not_a_buffer(buffer);
        return describe(m.recorder->buffer(buffer), info);
    });
}

tutti_status tutti_model_gradient(tutti_model* model, tutti_buffer of, tutti_buffer* gradient) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(need(gradient, "gradient"));
        if (!m.recorder->valid(of)) return not_a_buffer(of);
        const Buffer& buffer = m.recorder->buffer(of);
        if (buffer.gradient == none)
            return invalid("'{}' has no gradient{}", buffer.full_name(),
                           m.phase == BuilderPhase::update
                               ? ""
                               : " yet: the trainer makes them after the forward builders")
                .advice(
                    "ask in the update builder for the gradient of a parameter, or of an "
                    "activation that leads to a loss");
        *gradient = buffer.gradient;
        return {};
    });
}

tutti_status tutti_model_sparse(tutti_model* model, tutti_buffer parameter, tutti_buffer* values,
                                tutti_buffer* rows, tutti_buffer* count) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(need(values, "values"));
        TRAINER_TRY(need(rows, "rows"));
        TRAINER_TRY(need(count, "count"));
        if (!m.recorder->valid(parameter) || !m.recorder->buffer(parameter).sparse())
            return invalid("buffer {} is not a sparse parameter", parameter)
                .advice("pass the handle of a parameter declared with TUTTI_SPARSE");
        const Buffer& table = m.recorder->buffer(parameter);
        *values = table.gradient;
        *rows = table.sparse_rows;
        *count = table.sparse_count;
        return {};
    });
}

tutti_status tutti_model_learning_rate(tutti_model* model, double value, tutti_buffer* buffer) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(declare_state(model, "learning_rate", TUTTI_FLOAT64, buffer));
        m.recorder->initial.push_back({*buffer, value});
        return {};
    });
}

tutti_status tutti_model_iteration(tutti_model* model, tutti_buffer* buffer) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(declare_state(model, iteration_name, TUTTI_INT64, buffer));
        m.recorder->buffer(*buffer).counts_steps = true;
        return {};
    });
}

tutti_status tutti_model_operation(tutti_model* model, const tutti_operation_spec* spec) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(need_struct(spec, "spec"));
        return m.operation(*spec);
    });
}

tutti_status tutti_model_collective(tutti_model* model, const tutti_collective_spec* spec) {
    return on_model(__func__, model, [&](tutti_model& m) -> Result<> {
        TRAINER_TRY(need_struct(spec, "spec"));
        return m.collective(*spec);
    });
}

tutti_status tutti_model_copy(tutti_model* model, const char* name, tutti_buffer from,
                              tutti_buffer to) {
    return on_model(__func__, model, [&](tutti_model& m) { return m.copy(name, from, to); });
}

tutti_status tutti_model_enter(tutti_model* model, const char* name) {
    return on_model(__func__, model, [&](tutti_model& m) { return m.enter(name); });
}

tutti_status tutti_model_leave(tutti_model* model) {
    return on_model(__func__, model, [&](tutti_model& m) { return m.leave(); });
}

int tutti_model_device(const tutti_model* model) {
    return model ? model->device : -1;
}

int tutti_model_replica(const tutti_model* model) {
    return model ? model->replica : -1;
}

int tutti_model_replicas(const tutti_model* model) {
    return model ? model->replicas : -1;
}

tutti_status tutti_losses_add(tutti_losses* losses, tutti_buffer loss) {
    return call(__func__, losses, "losses", [&](tutti_losses& list) { return list.add(loss); });
}

void* tutti_step_data(tutti_step* step, tutti_buffer buffer) {
    return step ? step->data(buffer) : nullptr;
}

void* tutti_step_gradient(tutti_step* step, tutti_buffer buffer) {
    if (!step || !step->recorder->valid(buffer)) return nullptr;
    const int gradient = step->recorder->buffer(buffer).gradient;
    return gradient == none ? nullptr : step->data(gradient);
}

int tutti_step_device(const tutti_step* step) {
    return step ? step->node->device : -1;
}

int tutti_step_micro_batch(const tutti_step* step) {
    return step ? step->context->micro : -1;
}

int64_t tutti_step_iteration(const tutti_step* step) {
    return step ? step->context->iteration : -1;
}

double tutti_step_loss_scale(const tutti_step* step) {
    return step ? step->context->loss_scale_of(step->node->device) : 0;
}

int64_t tutti_step_samples(const tutti_step* step) {
    return step ? step->context->samples_of(step->node->device) : -1;
}

tutti_status tutti_parallelize(const tutti_parallelize_spec* spec, tutti_trainer** trainer) {
    return guard(__func__, [&]() -> Result<> {
        TRAINER_TRY(need_struct(spec, "spec"));
        TRAINER_TRY(need(trainer, "trainer"));
        TRAINER_ASSIGN(auto built, tutti_trainer::build(*spec));
        *trainer = built.release();
        return {};
    });
}

void tutti_trainer_destroy(tutti_trainer* trainer) {
    delete trainer;
}

tutti_status tutti_trainer_init_sync(tutti_trainer* trainer) {
    return on_trainer(__func__, trainer, [](tutti_trainer& t) { return t.sync(); });
}

tutti_status tutti_trainer_sync(tutti_trainer* trainer) {
    return on_trainer(__func__, trainer, [](tutti_trainer& t) { return t.sync(); });
}

tutti_status tutti_trainer_step(tutti_trainer* trainer, const int64_t* samples, int64_t* total) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_ASSIGN(const int64_t all, t.steps().run(samples));
        if (total) *total = all;
        return {};
    });
}

tutti_status tutti_trainer_epoch_barrier(tutti_trainer* trainer) {
    return on_trainer(__func__, trainer, [](tutti_trainer& t) { return t.epoch_barrier(); });
}

tutti_status tutti_trainer_sparse_pull(tutti_trainer* trainer, const char* parameter,
                                       int64_t total_rows, const int64_t* rows, size_t count,
                                       void* values) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(parameter, "parameter"));
        if (count > 0) TRAINER_TRY(need(rows, "rows"));
        if (count > 0) TRAINER_TRY(need(values, "values"));
        return t.sparse_pull(parameter, total_rows, rows, count, values);
    });
}

tutti_status tutti_trainer_begin(tutti_trainer* trainer) {
    return on_trainer(__func__, trainer, [](tutti_trainer& t) { return t.steps().begin(); });
}

tutti_status tutti_trainer_grad_ready(tutti_trainer* trainer, int device, const char* parameter) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(parameter, "parameter"));
        return t.steps().ready(device, parameter);
    });
}

tutti_status tutti_trainer_finish(tutti_trainer* trainer) {
    return on_trainer(__func__, trainer, [](tutti_trainer& t) { return t.steps().finish(); });
}

tutti_status tutti_trainer_set_recovery(tutti_trainer* trainer,
                                        const tutti_trainer_recovery* recovery) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need_struct(recovery, "recovery"));
        return t.set_recovery(*recovery);
    });
}

tutti_status tutti_trainer_recover(tutti_trainer* trainer) {
    return on_trainer(__func__, trainer, [](tutti_trainer& t) { return t.recover(); });
}

tutti_status tutti_trainer_admit(tutti_trainer* trainer, int newcomers) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) { return t.admit(newcomers); });
}

tutti_comm* tutti_trainer_comm(const tutti_trainer* trainer) {
    return trainer ? trainer->comm() : nullptr;
}

int64_t tutti_trainer_recoveries(const tutti_trainer* trainer) {
    if (!trainer) return -1;
    return trainer->recovery() ? trainer->recovery()->count() : 0;
}

size_t tutti_trainer_recovery_bytes(const tutti_trainer* trainer) {
    return trainer && trainer->recovery() ? trainer->recovery()->copied_bytes() : 0;
}

int tutti_trainer_buffer_count(const tutti_trainer* trainer, int device) {
    if (!trainer || device < 0 || device >= trainer->recorder().devices()) return -1;
    int count = 0;
    while (nth(*trainer, device, count)) ++count;
    return count;
}

tutti_status tutti_trainer_buffer_info(const tutti_trainer* trainer, int device, int index,
                                       tutti_buffer_info* info) {
    return on_trainer(__func__, trainer, [&](const tutti_trainer& t) -> Result<> {
        const Buffer* buffer = index < 0 ? nullptr : nth(t, device, index);
        if (!buffer)
            return invalid("device {} has no buffer with index {}", device, index)
                .advice("pass an index below tutti_trainer_buffer_count of an existing device");
        return describe(*buffer, info);
    });
}

tutti_status tutti_trainer_find(const tutti_trainer* trainer, int device, const char* name,
                                tutti_buffer_info* info) {
    return on_trainer(__func__, trainer, [&](const tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(name, "name"));
        TRAINER_ASSIGN(const Buffer* const buffer, t.recorder().look_up(device, name));
        return describe(*buffer, info);
    });
}

tutti_status tutti_trainer_read(tutti_trainer* trainer, int device, const char* name, void* host,
                                size_t bytes) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(name, "name"));
        TRAINER_TRY(need(host, "host"));
        return t.state().read(device, name, host, bytes);
    });
}

tutti_status tutti_trainer_write(tutti_trainer* trainer, int device, const char* name,
                                 const void* host, size_t bytes) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(name, "name"));
        TRAINER_TRY(need(host, "host"));
        return t.write(device, name, host, bytes);
    });
}

int tutti_trainer_param_count(const tutti_trainer* trainer, const char* scope) {
    int count = -1;
    on_trainer(__func__, trainer, [&](const tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(scope, "scope"));
        TRAINER_ASSIGN(const auto list, t.state().params(scope));
        count = static_cast<int>(list.size());
        return {};
    });
    return count;
}

tutti_status tutti_trainer_param(const tutti_trainer* trainer, const char* scope, int index,
                                 tutti_buffer_info* info) {
    return on_trainer(__func__, trainer, [&](const tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(scope, "scope"));
        TRAINER_ASSIGN(const auto list, t.state().params(scope));
        if (index < 0 || static_cast<std::size_t>(index) >= list.size())
            return invalid("scope '{}' has {} parameters, but none with index {}", scope,
                           list.size(), index)
                .advice("pass an index from 0 on, below tutti_trainer_param_count");
        const auto& [buffer, prefix] = list[static_cast<std::size_t>(index)];
        TRAINER_TRY(describe(*buffer, info));
        info->name += prefix;
        return {};
    });
}

tutti_status tutti_trainer_save(tutti_trainer* trainer, const char* path) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(path, "path"));
        return t.save(path);
    });
}

tutti_status tutti_trainer_load(tutti_trainer* trainer, const char* path,
                                const tutti_checkpoint_opts* opts) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(path, "path"));
        return t.load(path, opts);
    });
}

tutti_status tutti_trainer_checkpoint(tutti_trainer* trainer, tutti_checkpoint* checkpoint) {
    return on_trainer(__func__, trainer, [&](tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(checkpoint, "checkpoint"));
        return t.state().add_to(checkpoint->entries);
    });
}

tutti_status tutti_trainer_count(const tutti_trainer* trainer, tutti_trainer_counters* counters) {
    return on_trainer(__func__, trainer, [&](const tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need_struct(counters, "counters"));
        t.count(*counters);
        return {};
    });
}

tutti_status tutti_trainer_reduced_bytes(const tutti_trainer* trainer, const char* parameter,
                                         uint64_t* bytes) {
    return on_trainer(__func__, trainer, [&](const tutti_trainer& t) -> Result<> {
        TRAINER_TRY(need(parameter, "parameter"));
        TRAINER_TRY(need(bytes, "bytes"));
        TRAINER_ASSIGN(*bytes, t.reduced_bytes(parameter));
        return {};
    });
}
