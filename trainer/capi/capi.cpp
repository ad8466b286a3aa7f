// The C boundary: nothing but statuses leaves here.
#include <cstring>

#include "trainer/trainer.h"

using namespace tutti::training;

namespace {

template <typename T>
T& need(T* pointer, const char* what) {
    if (!pointer) invalid("{} is NULL", what);
    return *pointer;
}

template <typename T>
void need_size(const T& given, const char* what) {
    if (given.struct_size != sizeof(T))
        invalid("{}.struct_size is {}, not {}; start from its initialiser", what, given.struct_size,
                sizeof(T));
}

void need_functions(const tutti_device_functions& f) {
    const std::pair<bool, const char*> list[] = {
        {f.alloc != nullptr, "alloc"}, {f.free != nullptr, "free"},   {f.copy != nullptr, "copy"},
        {f.zero != nullptr, "zero"},   {f.axpby != nullptr, "axpby"}, {f.run != nullptr, "run"}};
    for (const auto& [there, name] : list)
        if (!there) invalid("functions.{} is NULL", name);
}

void describe(const Buffer& buffer, tutti_buffer_info& info) {
    need_size(info, "info");
    info.name = buffer.name.c_str();
    info.kind = buffer.kind;
    info.dtype = buffer.dtype;
    info.bytes = buffer.bytes;
    info.dimensions = static_cast<int>(buffer.shape.size());
    for (std::size_t i = 0; i < TUTTI_MAX_DIMENSIONS; ++i)
        info.shape[i] = i < buffer.shape.size() ? buffer.shape[i] : 0;
    info.flags = buffer.flags;
    info.data = buffer.data;
    info.total_rows = buffer.total_rows;
    info.first_row = buffer.first_row;
    info.own_rows = buffer.own_rows;
}

const Buffer* nth(const tutti_trainer& trainer, int device, int index) {
    for (const Buffer& buffer : trainer.recorder().buffers())
        if (buffer.device == device && index-- == 0) return &buffer;
    return nullptr;
}

tutti_buffer declare_state(tutti_model& model, const char* name, tutti_dtype dtype) {
    tutti_buffer_spec spec = TUTTI_BUFFER_SPEC_INIT;
    spec.name = name;
    spec.kind = TUTTI_STATE;
    spec.dtype = dtype;
    spec.bytes = tutti_dtype_size(dtype);
    if (model.phase != Phase::update) invalid("{} is for the update builder", name);
    return model.declare(spec);
}

}  // namespace

tutti_status tutti_device_create(const tutti_device_functions* functions, void* user,
                                 tutti_device** device) {
    return guard(__func__, [&] {
        need(device, "device");
        need_size(need(functions, "functions"), "functions");
        need_functions(*functions);
        *device = new tutti_device(*functions, user);
    });
}

tutti_status tutti_device_create_cpu(tutti_device** device) {
    return guard(__func__,
                 [&] { need(device, "device") = new tutti_device(cpu_functions(), nullptr); });
}

void tutti_device_destroy(tutti_device* device) {
    delete device;
}

tutti_status tutti_model_buffer(tutti_model* model, const tutti_buffer_spec* spec,
                                tutti_buffer* buffer) {
    return guard(__func__, [&] {
        need_size(need(spec, "spec"), "spec");
        const int made = need(model, "model").declare(*spec);
        need(buffer, "buffer") = made;
    });
}

tutti_status tutti_model_find(tutti_model* model, const char* name, tutti_buffer* buffer) {
    return guard(__func__,
                 [&] { need(buffer, "buffer") = need(model, "model").find(&need(name, "name")); });
}

tutti_status tutti_model_info(tutti_model* model, tutti_buffer buffer, tutti_buffer_info* info) {
    return guard(__func__, [&] {
        const Recorder& recorder = *need(model, "model").recorder;
        if (!recorder.valid(buffer)) invalid("{} is no buffer", buffer);
        describe(recorder.buffer(buffer), need(info, "info"));
    });
}

tutti_status tutti_model_gradient(tutti_model* model, tutti_buffer of, tutti_buffer* gradient) {
    return guard(__func__, [&] {
        const Recorder& recorder = *need(model, "model").recorder;
        if (!recorder.valid(of)) invalid("{} is no buffer", of);
        const Buffer& buffer = recorder.buffer(of);
        if (buffer.gradient == none)
            invalid("'{}' has no gradient{}", buffer.full_name(),
                    model->phase == Phase::update ? ""
                                                  : " yet; they are made after the forward "
                                                    "builders");
        need(gradient, "gradient") = buffer.gradient;
    });
}

tutti_status tutti_model_sparse(tutti_model* model, tutti_buffer parameter, tutti_buffer* values,
                                tutti_buffer* rows, tutti_buffer* count) {
    return guard(__func__, [&] {
        const Recorder& recorder = *need(model, "model").recorder;
        if (!recorder.valid(parameter) || !recorder.buffer(parameter).sparse())
            invalid("{} is no sparse parameter", parameter);
        const Buffer& table = recorder.buffer(parameter);
        need(values, "values") = table.gradient;
        need(rows, "rows") = table.sparse_rows;
        need(count, "count") = table.sparse_count;
    });
}

tutti_status tutti_model_learning_rate(tutti_model* model, double value, tutti_buffer* buffer) {
    return guard(__func__, [&] {
        const int made = declare_state(need(model, "model"), "learning_rate", TUTTI_FLOAT64);
        need(buffer, "buffer") = made;
        model->recorder->initial.push_back({made, value});
    });
}

tutti_status tutti_model_iteration(tutti_model* model, tutti_buffer* buffer) {
    return guard(__func__, [&] {
        need(buffer, "buffer") = declare_state(need(model, "model"), "iteration", TUTTI_INT64);
    });
}

tutti_status tutti_model_operation(tutti_model* model, const tutti_operation_spec* spec) {
    return guard(__func__, [&] {
        need_size(need(spec, "spec"), "spec");
        need(model, "model").operation(*spec);
    });
}

tutti_status tutti_model_collective(tutti_model* model, const tutti_collective_spec* spec) {
    return guard(__func__, [&] {
        need_size(need(spec, "spec"), "spec");
        need(model, "model").collective(*spec);
    });
}

tutti_status tutti_model_enter(tutti_model* model, const char* name) {
    return guard(__func__, [&] { need(model, "model").enter(name); });
}

tutti_status tutti_model_leave(tutti_model* model) {
    return guard(__func__, [&] { need(model, "model").leave(); });
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
    return guard(__func__, [&] { need(losses, "losses").add(loss); });
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
    try {
        need_size(need(spec, "spec"), "spec");
        need(trainer, "trainer") = new tutti_trainer(*spec);
        return TUTTI_OK;
    } catch (const Failure& failure) {
        return report(failure);
    } catch (...) {
        return report_current(__func__);
    }
}

void tutti_trainer_destroy(tutti_trainer* trainer) {
    delete trainer;
}

tutti_status tutti_trainer_init_sync(tutti_trainer* trainer) {
    return guard(__func__, [&] { need(trainer, "trainer").sync(); });
}

tutti_status tutti_trainer_sync(tutti_trainer* trainer) {
    return guard(__func__, [&] { need(trainer, "trainer").sync(); });
}

tutti_status tutti_trainer_step(tutti_trainer* trainer, const int64_t* samples, int64_t* total) {
    return guard(__func__, [&] {
        const int64_t all = need(trainer, "trainer").step(samples);
        if (total) *total = all;
    });
}

tutti_status tutti_trainer_epoch_barrier(tutti_trainer* trainer) {
    return guard(__func__, [&] { need(trainer, "trainer").epoch_barrier(); });
}

tutti_status tutti_trainer_sparse_pull(tutti_trainer* trainer, const char* parameter,
                                       int64_t total_rows, const int64_t* rows, size_t count,
                                       void* values) {
    return guard(__func__, [&] {
        if (count > 0 && (!rows || !values)) invalid("{} is NULL", rows ? "values" : "rows");
        need(trainer, "trainer")
            .sparse_pull(&need(parameter, "parameter"), total_rows, rows, count, values);
    });
}

tutti_status tutti_trainer_begin(tutti_trainer* trainer) {
    return guard(__func__, [&] { need(trainer, "trainer").begin(); });
}

tutti_status tutti_trainer_grad_ready(tutti_trainer* trainer, int device, const char* parameter) {
    return guard(__func__, [&] {
        need(trainer, "trainer").grad_ready(device, &need(parameter, "parameter"));
    });
}

tutti_status tutti_trainer_finish(tutti_trainer* trainer) {
    return guard(__func__, [&] { need(trainer, "trainer").finish(); });
}

int tutti_trainer_buffer_count(const tutti_trainer* trainer, int device) {
    if (!trainer || device < 0 || device >= trainer->devices()) return -1;
    int count = 0;
    while (nth(*trainer, device, count)) ++count;
    return count;
}

tutti_status tutti_trainer_buffer_info(const tutti_trainer* trainer, int device, int index,
                                       tutti_buffer_info* info) {
    return guard(__func__, [&] {
        const Buffer* buffer = index < 0 ? nullptr : nth(need(trainer, "trainer"), device, index);
        if (!buffer) invalid("device {} has no buffer {}", device, index);
        describe(*buffer, need(info, "info"));
    });
}

tutti_status tutti_trainer_find(const tutti_trainer* trainer, int device, const char* name,
                                tutti_buffer_info* info) {
    return guard(__func__, [&] {
        describe(need(trainer, "trainer").find(device, &need(name, "name")), need(info, "info"));
    });
}

tutti_status tutti_trainer_read(tutti_trainer* trainer, int device, const char* name, void* host,
                                size_t bytes) {
    return guard(__func__, [&] {
        if (!host) invalid("host is NULL");
        need(trainer, "trainer").read(device, &need(name, "name"), host, bytes);
    });
}

tutti_status tutti_trainer_write(tutti_trainer* trainer, int device, const char* name,
                                 const void* host, size_t bytes) {
    return guard(__func__, [&] {
        if (!host) invalid("host is NULL");
        need(trainer, "trainer").write(device, &need(name, "name"), host, bytes);
    });
}

int tutti_trainer_param_count(const tutti_trainer* trainer, const char* scope) {
    int count = -1;
    guard(__func__, [&] {
        const auto list = need(trainer, "trainer").params(&need(scope, "scope"));
        count = static_cast<int>(list.size());
    });
    return count;
}

tutti_status tutti_trainer_param(const tutti_trainer* trainer, const char* scope, int index,
                                 tutti_buffer_info* info) {
    return guard(__func__, [&] {
        const auto list = need(trainer, "trainer").params(&need(scope, "scope"));
        if (index < 0 || static_cast<std::size_t>(index) >= list.size())
            invalid("scope '{}' has no parameter {}; there are {}", scope, index, list.size());
        const auto& [buffer, prefix] = list[static_cast<std::size_t>(index)];
        describe(*buffer, need(info, "info"));
        info->name += prefix;
    });
}

tutti_status tutti_trainer_save(tutti_trainer* trainer, const char* path) {
    return guard(__func__, [&] { need(trainer, "trainer").save(&need(path, "path")); });
}

tutti_status tutti_trainer_load(tutti_trainer* trainer, const char* path,
                                const tutti_checkpoint_opts* opts) {
    return guard(__func__, [&] { need(trainer, "trainer").load(&need(path, "path"), opts); });
}

tutti_status tutti_trainer_checkpoint(tutti_trainer* trainer, tutti_checkpoint* checkpoint) {
    return guard(__func__,
                 [&] { need(trainer, "trainer").add_to(need(checkpoint, "checkpoint").entries); });
}

tutti_status tutti_trainer_count(const tutti_trainer* trainer, tutti_trainer_counters* counters) {
    return guard(__func__, [&] {
        need_size(need(counters, "counters"), "counters");
        need(trainer, "trainer").count(*counters);
    });
}

tutti_status tutti_trainer_reduced_bytes(const tutti_trainer* trainer, const char* parameter,
                                         uint64_t* bytes) {
    return guard(__func__, [&] {
        need(bytes, "bytes") =
            need(trainer, "trainer").reduced_bytes(&need(parameter, "parameter"));
    });
}
