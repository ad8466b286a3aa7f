#include "trainer/model/recorder.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tutti::trainer {
namespace {

Result<> check_name(const char* what, const char* name) {
    if (!name || !*name) return invalid("{} has no name", what);
    const std::string_view text(name);
    const bool plain = std::ranges::all_of(text, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    });
    if (!plain)
        return invalid(
            "{} '{}': a name has letters, digits and . _ - only (scopes: tutti_model_enter)", what,
            name);
    return {};
}

Result<std::vector<int64_t>> shape_of(const tutti_buffer_spec& spec, std::size_t element,
                                      std::size_t* bytes) {
    if (spec.dimensions < 0 || spec.dimensions > TUTTI_MAX_DIMENSIONS)
        return invalid("buffer '{}' has {} dimensions; 0 to {} are possible", spec.name,
                       spec.dimensions, TUTTI_MAX_DIMENSIONS);
    if (spec.bytes % element != 0)
        return invalid("buffer '{}': {} bytes are no multiple of {}'s {}", spec.name, spec.bytes,
                       tutti_dtype_name(spec.dtype), element);
    if (spec.dimensions == 0) {
        *bytes = spec.bytes;
        return std::vector{static_cast<int64_t>(spec.bytes / element)};
    }
    std::size_t total = element;
    for (int i = 0; i < spec.dimensions; ++i)
        if (spec.shape[i] < 0 ||
            __builtin_mul_overflow(total, static_cast<std::size_t>(spec.shape[i]), &total))
            return invalid("buffer '{}': dimension {} is {}", spec.name, i, spec.shape[i]);
    if (spec.bytes != 0 && spec.bytes != total)
        return invalid("buffer '{}': its shape has {} bytes, its declaration says {}", spec.name,
                       total, spec.bytes);
    *bytes = total;
    return std::vector<int64_t>{spec.shape, spec.shape + spec.dimensions};
}

}  // namespace

Result<int> ModelRecorder::add(Buffer buffer) {
    const int index = static_cast<int>(buffers_.size());
    const auto [at, fresh] = by_name_.try_emplace(buffer.full_name(), index);
    if (!fresh)
        return invalid("buffer '{}' is declared twice; give one of them another name",
                       buffer.full_name());
    buffers_.push_back(std::move(buffer));
    return index;
}

int ModelRecorder::find(int device, const std::string& name) const {
    const auto found = by_name_.find(fmt::format("device_{}/{}", device, name));
    return found == by_name_.end() ? none : found->second;
}

Result<const Buffer*> ModelRecorder::look_up(int device, const std::string& name) const {
    if (device < 0 || device >= devices_)
        return invalid("device {} is out of range; there are {}", device, devices_);
    const int found = find(device, name);
    if (found == none) return invalid("device_{} has no buffer '{}'", device, name);
    return &buffer(found);
}

std::vector<int> ModelRecorder::of_kind(int device, tutti_buffer_kind kind) const {
    std::vector<int> found;
    for (std::size_t i = 0; i < buffers_.size(); ++i)
        if (buffers_[i].device == device && buffers_[i].kind == kind)
            found.push_back(static_cast<int>(i));
    return found;
}

}  // namespace tutti::trainer

using namespace tutti::trainer;

std::string tutti_model::scoped(const std::string& name) const {
    std::string full;
    for (const std::string& scope : scopes) full += scope + "/";
    return full + name;
}

Result<int> tutti_model::declare(const tutti_buffer_spec& spec) {
    TRAINER_TRY(check_name("a buffer", spec.name));
    if (spec.kind < TUTTI_PARAMETER || spec.kind > TUTTI_STATE)
        return invalid("buffer '{}': {} is no kind", spec.name, static_cast<int>(spec.kind));
    const std::size_t element = tutti_dtype_size(spec.dtype);
    if (element == 0) return invalid("buffer '{}': {} is no dtype", spec.name, spec.dtype);
    if (phase == BuilderPhase::update && spec.kind == TUTTI_PARAMETER)
        return invalid("buffer '{}': the update builder cannot declare parameters; use kind state",
                       spec.name);
    Buffer buffer{.name = scoped(spec.name),
                  .device = device,
                  .kind = spec.kind,
                  .dtype = spec.dtype,
                  .flags = spec.flags};
    TRAINER_ASSIGN(buffer.shape, shape_of(spec, element, &buffer.bytes));
    TRAINER_TRY(set_rows(buffer, spec.total_rows));
    if (spec.flags & TUTTI_SPARSE) {
        TRAINER_ASSIGN(const int parameter, recorder->add(std::move(buffer)));
        return declare_sparse(parameter, spec.sparse_rows);
    }
    if (spec.kind == TUTTI_GRADIENT) return declare_gradient(spec, std::move(buffer));
    return recorder->add(std::move(buffer));
}

Result<int> tutti_model::declare_gradient(const tutti_buffer_spec& spec, Buffer buffer) {
    if (!recorder->valid(spec.gradient_of) || recorder->buffer(spec.gradient_of).device != device)
        return invalid("gradient '{}': gradient_of is no buffer of device_{}", spec.name, device);
    Buffer& of = recorder->buffer(spec.gradient_of);
    if (of.gradient != none)
        return invalid("'{}' has two gradients, '{}' and '{}'", of.full_name(),
                       recorder->buffer(of.gradient).name, buffer.name);
    if (of.bytes != buffer.bytes || of.dtype != buffer.dtype)
        return invalid("gradient '{}' has not the size and dtype of '{}'", buffer.name,
                       of.full_name());
    buffer.gradient_of = spec.gradient_of;
    TRAINER_ASSIGN(const int index, recorder->add(std::move(buffer)));
    recorder->buffer(spec.gradient_of).gradient = index;
    return index;
}

// Which rows of the whole a shard has; without total_rows the trainer finds out from all ranks.
Result<> tutti_model::set_rows(Buffer& buffer, int64_t total_rows) const {
    if (total_rows == 0) return {};
    if (!buffer.distributed() || total_rows < 0)
        return invalid(
            "buffer '{}' has total_rows {}; those are for TUTTI_DISTRIBUTED, and positive",
            buffer.name, total_rows);
    const int64_t each = (total_rows + replicas - 1) / replicas;
    buffer.total_rows = total_rows;
    buffer.first_row = std::min(total_rows, replica * each);
    buffer.own_rows = std::min(each, total_rows - buffer.first_row);
    if (buffer.shape.front() < buffer.own_rows)
        return invalid("buffer '{}' has {} rows, but replica {} of {} holds {} of {}",
                       buffer.full_name(), buffer.shape.front(), replica, replicas, buffer.own_rows,
                       total_rows);
    return {};
}

// There is room for the entries of all replicas' micro-batches.
Result<int> tutti_model::declare_sparse(int parameter, int64_t rows) {
    const Buffer table = recorder->buffer(parameter);
    if (table.kind != TUTTI_PARAMETER || table.distributed() || table.shape.empty() ||
        (table.dtype != TUTTI_FLOAT32 && table.dtype != TUTTI_FLOAT64) || rows < 1)
        return invalid(
            "'{}' is sparse, so it is a parameter of float32 or float64, not distributed, with "
            "sparse_rows of at least 1",
            table.full_name());
    const int64_t room = rows * replicas * micro_batches;
    const auto add = [&](const char* ending, tutti_dtype dtype, std::vector<int64_t> shape) {
        Buffer buffer{.name = table.name + ending,
                      .device = device,
                      .kind = TUTTI_GRADIENT,
                      .dtype = dtype,
                      .bytes = tutti_dtype_size(dtype),
                      .shape = shape};
        for (int64_t extent : shape) buffer.bytes *= static_cast<std::size_t>(extent);
        buffer.gradient_of = parameter;
        return recorder->add(std::move(buffer));
    };
    std::vector<int64_t> values = table.shape;
    values.front() = room;
    TRAINER_ASSIGN(const int gradient, add("_grad", table.dtype, values));
    TRAINER_ASSIGN(const int indices, add("_grad_rows", TUTTI_INT64, {room}));
    TRAINER_ASSIGN(const int count, add("_grad_count", TUTTI_INT64, {1}));
    Buffer& declared = recorder->buffer(parameter);
    declared.gradient = gradient;
    declared.sparse_rows = indices;
    declared.sparse_count = count;
    return parameter;
}

Result<int> tutti_model::find(const std::string& name) const {
    constexpr std::string_view prefix = "device_";
    const std::size_t slash = name.find('/');
    if (name.starts_with(prefix) && slash != std::string::npos) {
        const std::string digits = name.substr(prefix.size(), slash - prefix.size());
        if (!digits.empty() && digits.size() < 6 &&
            digits.find_first_not_of("0123456789") == std::string::npos)
            if (const int found = recorder->find(std::stoi(digits), name.substr(slash + 1));
                found != none)
                return found;
    }
    int found = recorder->find(device, scoped(name));
    if (found == none) found = recorder->find(device, name);
    if (found == none) return invalid("device_{} has no buffer '{}'", device, scoped(name));
    return found;
}

Result<> tutti_model::check_handles(const std::string& operation, const tutti_buffer* list,
                                    std::size_t count, const char* what) const {
    if (count && !list) return invalid("operation '{}': {} is NULL", operation, what);
    for (std::size_t i = 0; i < count; ++i)
        if (!recorder->valid(list[i]))
            return invalid("operation '{}': {}[{}] is {}, which is no buffer", operation, what, i,
                           list[i]);
    return {};
}

Result<> tutti_model::operation(const tutti_operation_spec& spec) {
    TRAINER_TRY(check_name("an operation", spec.name));
    DeclaredOperation op{.name = scoped(spec.name), .device = device, .phase = phase};
    TRAINER_TRY(check_handles(op.full_name(), spec.reads, spec.read_count, "reads"));
    TRAINER_TRY(check_handles(op.full_name(), spec.writes, spec.write_count, "writes"));
    if (!spec.forward) return invalid("operation '{}' has no forward function", op.full_name());
    if (spec.read_count) op.reads.assign(spec.reads, spec.reads + spec.read_count);
    if (spec.write_count) op.writes.assign(spec.writes, spec.writes + spec.write_count);
    op.forward = spec.forward;
    op.backward = spec.backward;
    op.user = spec.user;
    recorder->add(std::move(op));
    return {};
}

Result<> tutti_model::collective(const tutti_collective_spec& spec) {
    TRAINER_TRY(check_name("a collective", spec.name));
    DeclaredOperation op{.name = scoped(spec.name), .device = device, .phase = phase};
    TRAINER_TRY(check_handles(op.full_name(), &spec.in, 1, "in"));
    TRAINER_TRY(check_handles(op.full_name(), &spec.out, 1, "out"));
    if (spec.in == spec.out)
        return invalid("collective '{}': in and out are one buffer", op.full_name());
    if (spec.kind < TUTTI_COLLECTIVE_ALLREDUCE || spec.kind > TUTTI_COLLECTIVE_REDUCE_SCATTER)
        return invalid("collective '{}': {} is no kind", op.full_name(),
                       static_cast<int>(spec.kind));
    const Buffer& in = recorder->buffer(spec.in);
    const Buffer& out = recorder->buffer(spec.out);
    const auto blocks = static_cast<std::size_t>(replicas);
    const std::size_t in_blocks = spec.kind == TUTTI_COLLECTIVE_REDUCE_SCATTER ? blocks : 1;
    const std::size_t out_blocks = spec.kind == TUTTI_COLLECTIVE_ALLGATHER ? blocks : 1;
    if (in.dtype != out.dtype || in.bytes * out_blocks != out.bytes * in_blocks)
        return invalid("collective '{}' among {} replicas: '{}' has {} bytes of {}, '{}' {} of {}",
                       op.full_name(), replicas, in.name, in.bytes, tutti_dtype_name(in.dtype),
                       out.name, out.bytes, tutti_dtype_name(out.dtype));
    if (spec.root < 0 || spec.root >= replicas)
        return invalid("collective '{}': root {} is out of range; there are {} replicas",
                       op.full_name(), spec.root, replicas);
    op.reads = {spec.in};
    op.writes = {spec.out};
    op.collective = CollectiveCall{spec.kind, spec.op, spec.root, spec.backward};
    recorder->add(std::move(op));
    return {};
}

Result<> tutti_model::copy(const char* name, tutti_buffer from, tutti_buffer to) {
    TRAINER_TRY(check_name("a copy", name));
    DeclaredOperation op{.name = scoped(name), .device = device, .phase = phase};
    TRAINER_TRY(check_handles(op.full_name(), &from, 1, "from"));
    TRAINER_TRY(check_handles(op.full_name(), &to, 1, "to"));
    const Buffer& source = recorder->buffer(from);
    const Buffer& target = recorder->buffer(to);
    if (target.device != device)
        return invalid(
            "copy '{}' of scope device_{} writes '{}' of another; a copy goes to its own",
            op.full_name(), device, target.full_name());
    if (from == to || source.dtype != target.dtype || source.bytes != target.bytes)
        return invalid("copy '{}': '{}' has {} bytes of {}, '{}' {} of {}", op.full_name(),
                       source.full_name(), source.bytes, tutti_dtype_name(source.dtype),
                       target.full_name(), target.bytes, tutti_dtype_name(target.dtype));
    op.reads = {from};
    op.writes = {to};
    op.copies = true;
    recorder->add(std::move(op));
    return {};
}

Result<> tutti_model::enter(const char* name) {
    TRAINER_TRY(check_name("a scope", name));
    scopes.emplace_back(name);
    return {};
}

Result<> tutti_model::leave() {
    if (scopes.empty()) return invalid("tutti_model_leave without tutti_model_enter");
    scopes.pop_back();
    return {};
}

Result<> tutti_losses::add(int buffer) {
    if (!model->recorder->valid(buffer)) return invalid("a loss is {}, which is no buffer", buffer);
    const Buffer& b = model->recorder->buffer(buffer);
    if (b.device != model->device)
        return invalid("the {} of scope device_{} returned the loss '{}' of another scope",
                       model->builder, model->device, b.full_name());
    if (b.kind != TUTTI_ACTIVATION || (b.dtype != TUTTI_FLOAT32 && b.dtype != TUTTI_FLOAT64))
        return invalid("the loss '{}' is no activation of float32 or float64", b.full_name());
    list.push_back(buffer);
    return {};
}
