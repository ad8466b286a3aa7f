#include "trainer/model/recorder.h"

#include <algorithm>
#include <cctype>
#include <string_view>

namespace tutti::trainer {
namespace {

constexpr const char* handle_advice =
    "pass a handle that tutti_model_buffer or tutti_model_find returned";

Result<> check_name(const char* what, const char* name) {
    if (!name || !*name)
        return invalid("{} has no name", what)
            .advice("pass a name of letters, digits and the characters . _ -");
    const std::string_view text(name);
    const bool plain = std::ranges::all_of(text, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    });
    if (!plain)
        return invalid("{} is named '{}', with a character that names cannot have", what, name)
            .advice(
                "use letters, digits and the characters . _ - only; for a scope, call "
                "tutti_model_enter");
    return {};
}

Result<std::vector<int64_t>> shape_of(const tutti_buffer_spec& spec, std::size_t element,
                                      std::size_t* bytes) {
    if (spec.dimensions < 0 || spec.dimensions > TUTTI_MAX_DIMENSIONS)
        return invalid("buffer '{}' has {} dimensions, out of range", spec.name, spec.dimensions)
            .advice("set spec.dimensions to 0 to {}", TUTTI_MAX_DIMENSIONS);
    if (spec.bytes % element != 0)
        return invalid("buffer '{}' has {} bytes, not a multiple of the {} bytes of {}", spec.name,
                       spec.bytes, element, tutti_dtype_name(spec.dtype))
            .advice("set spec.bytes to a multiple of {}", element);
    if (spec.dimensions == 0) {
        *bytes = spec.bytes;
        return std::vector{static_cast<int64_t>(spec.bytes / element)};
    }
    std::size_t total = element;
    for (int i = 0; i < spec.dimensions; ++i)
        if (spec.shape[i] < 0 ||
            __builtin_mul_overflow(total, static_cast<std::size_t>(spec.shape[i]), &total))
            return invalid("buffer '{}': spec.shape[{}] is {}, negative or too large", spec.name, i,
                           spec.shape[i])
                .advice("give a shape of extents of 0 or more that fits into memory");
    if (spec.bytes != 0 && spec.bytes != total)
        return invalid("buffer '{}': spec.shape has {} bytes, but spec.bytes is {}", spec.name,
                       total, spec.bytes)
            .advice("set spec.bytes to {}, or to 0", total);
    *bytes = total;
    return std::vector<int64_t>{spec.shape, spec.shape + spec.dimensions};
}

}  // namespace

Result<int> ModelRecorder::add(Buffer buffer) {
    const int index = static_cast<int>(buffers_.size());
    const auto [at, fresh] = by_name_.try_emplace(buffer.full_name(), index);
    if (!fresh)
        return invalid("buffer '{}' is declared twice", buffer.full_name())
            .advice("give one of the two buffers another name");
    buffers_.push_back(std::move(buffer));
    return index;
}

int ModelRecorder::find(int device, const std::string& name) const {
    const auto found = by_name_.find(fmt::format("device_{}/{}", device, name));
    return found == by_name_.end() ? none : found->second;
}

Result<const Buffer*> ModelRecorder::look_up(int device, const std::string& name) const {
    if (device < 0 || device >= devices_)
        return invalid("device {} is out of range: the trainer has {} devices", device, devices_)
            .advice("pass a device from 0 to {}", devices_ - 1);
    const int found = find(device, name);
    if (found == none)
        return invalid("device_{} has no buffer named '{}'", device, name)
            .advice("pass the name of a declared buffer, with its scopes (SCOPE/NAME)");
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
        return invalid("buffer '{}' has the unknown kind {}", spec.name,
                       static_cast<int>(spec.kind))
            .advice("set spec.kind to a constant of tutti_buffer_kind, such as TUTTI_PARAMETER");
    const std::size_t element = tutti_dtype_size(spec.dtype);
    if (element == 0)
        return invalid("buffer '{}' has the unknown dtype {}", spec.name, spec.dtype)
            .advice("set spec.dtype to a constant of tutti_dtype, such as TUTTI_FLOAT32");
    if (phase == BuilderPhase::update && spec.kind == TUTTI_PARAMETER)
        return invalid("buffer '{}': the update builder cannot declare a parameter", spec.name)
            .advice(
                "set spec.kind to TUTTI_STATE, or declare the parameter in the forward builder");
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
        return invalid("gradient '{}': spec.gradient_of is {}, not a buffer of device_{}",
                       spec.name, spec.gradient_of, device)
            .advice("set spec.gradient_of to a buffer of this device");
    Buffer& of = recorder->buffer(spec.gradient_of);
    if (of.gradient != none)
        return invalid("'{}' has two gradients, '{}' and '{}'", of.full_name(),
                       recorder->buffer(of.gradient).name, buffer.name)
            .advice("declare one gradient for each buffer");
    if (of.bytes != buffer.bytes || of.dtype != buffer.dtype)
        return invalid("gradient '{}' has {} bytes of {}, but '{}' has {} bytes of {}", buffer.name,
                       buffer.bytes, tutti_dtype_name(buffer.dtype), of.full_name(), of.bytes,
                       tutti_dtype_name(of.dtype))
            .advice("declare the gradient with the size and dtype of its buffer");
    buffer.gradient_of = spec.gradient_of;
    TRAINER_ASSIGN(const int index, recorder->add(std::move(buffer)));
    recorder->buffer(spec.gradient_of).gradient = index;
    return index;
}

// The rows of the whole that a shard has; without total_rows, number_rows() asks all ranks.
Result<> tutti_model::set_rows(Buffer& buffer, int64_t total_rows) const {
    if (total_rows == 0) return {};
    if (!buffer.distributed() || total_rows < 0)
        return invalid(
                   "buffer '{}' has total_rows {}, which is negative or lacks the flag "
                   "TUTTI_DISTRIBUTED",
                   buffer.name, total_rows)
            .advice(
                "set spec.total_rows to 0, or to a positive number with TUTTI_DISTRIBUTED in "
                "spec.flags");
    const int64_t each = (total_rows + replicas - 1) / replicas;
    buffer.total_rows = total_rows;
    buffer.first_row = std::min(total_rows, replica * each);
    buffer.own_rows = std::min(each, total_rows - buffer.first_row);
    if (buffer.shape.front() < buffer.own_rows)
        return invalid("buffer '{}' has {} rows, but replica {} of {} holds {} of {}",
                       buffer.full_name(), buffer.shape.front(), replica, replicas, buffer.own_rows,
                       total_rows)
            .advice("declare {} rows or more in spec.shape[0]", buffer.own_rows);
    return {};
}

// There is room for the entries of all replicas' micro-batches.
Result<int> tutti_model::declare_sparse(int parameter, int64_t rows) {
    const Buffer table = recorder->buffer(parameter);
    if (table.kind != TUTTI_PARAMETER || table.distributed() || table.shape.empty() ||
        (table.dtype != TUTTI_FLOAT32 && table.dtype != TUTTI_FLOAT64) || rows < 1)
        return invalid(
                   "sparse buffer '{}' is not a parameter of float32 or float64, or it is "
                   "distributed, without dimensions, or without sparse_rows",
                   table.full_name())
            .advice(
                "declare a parameter of float32 or float64 with a shape, with sparse_rows of 1 or "
                "more and without TUTTI_DISTRIBUTED");
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
    if (found == none)
        return invalid("device_{} has no buffer named '{}'", device, scoped(name))
            .advice(
                "declare the buffer before, or correct the name; device_N/NAME is a buffer of "
                "device N");
    return found;
}

Result<> tutti_model::check_handles(const std::string& operation, const tutti_buffer* list,
                                    std::size_t count, const char* what) const {
    if (count && !list)
        return invalid("operation '{}': {} is NULL, but its count is {}", operation, what, count)
            .advice("pass a list of buffers, or a count of 0");
    for (std::size_t i = 0; i < count; ++i)
        if (!recorder->valid(list[i]))
            return invalid("operation '{}': {}[{}] is {}, which is not a buffer", operation, what,
                           i, list[i])
                .advice("{}", handle_advice);
    return {};
}

Result<> tutti_model::operation(const tutti_operation_spec& spec) {
    TRAINER_TRY(check_name("an operation", spec.name));
    DeclaredOperation op{.name = scoped(spec.name), .device = device, .phase = phase};
    TRAINER_TRY(check_handles(op.full_name(), spec.reads, spec.read_count, "reads"));
    TRAINER_TRY(check_handles(op.full_name(), spec.writes, spec.write_count, "writes"));
    if (!spec.forward)
        return invalid("operation '{}' has no forward function", op.full_name())
            .advice("set spec.forward");
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
        return invalid("collective '{}': in and out are the same buffer", op.full_name())
            .advice("declare another buffer for the result");
    if (spec.kind < TUTTI_COLLECTIVE_ALLREDUCE || spec.kind > TUTTI_COLLECTIVE_REDUCE_SCATTER)
        return invalid("collective '{}' has the unknown kind {}", op.full_name(),
                       static_cast<int>(spec.kind))
            .advice("set spec.kind to a constant of tutti_collective_kind");
    const Buffer& in = recorder->buffer(spec.in);
    const Buffer& out = recorder->buffer(spec.out);
    const auto blocks = static_cast<std::size_t>(replicas);
    const std::size_t in_blocks = spec.kind == TUTTI_COLLECTIVE_REDUCE_SCATTER ? blocks : 1;
    const std::size_t out_blocks = spec.kind == TUTTI_COLLECTIVE_ALLGATHER ? blocks : 1;
    if (in.dtype != out.dtype || in.bytes * out_blocks != out.bytes * in_blocks)
        return invalid(
                   "collective '{}' among {} replicas: in '{}' has {} bytes of {}, out '{}' {} "
                   "bytes of {}",
                   op.full_name(), replicas, in.name, in.bytes, tutti_dtype_name(in.dtype),
                   out.name, out.bytes, tutti_dtype_name(out.dtype))
            .advice("use one dtype, and {} bytes for out", in.bytes * out_blocks / in_blocks);
    if (spec.root < 0 || spec.root >= replicas)
        return invalid("collective '{}': root {} is out of range: there are {} replicas",
                       op.full_name(), spec.root, replicas)
            .advice("set spec.root to 0 to {}", replicas - 1);
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
        return invalid("copy '{}' of scope device_{} writes '{}' of another device", op.full_name(),
                       device, target.full_name())
            .advice("declare the copy in the scope of the buffer that it writes");
    if (from == to || source.dtype != target.dtype || source.bytes != target.bytes)
        return invalid("copy '{}': '{}' has {} bytes of {}, '{}' {} bytes of {}", op.full_name(),
                       source.full_name(), source.bytes, tutti_dtype_name(source.dtype),
                       target.full_name(), target.bytes, tutti_dtype_name(target.dtype))
            .advice("copy between two different buffers of one size and dtype");
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
    if (scopes.empty())
        return invalid("no scope is entered")
            .advice("call tutti_model_leave once for each tutti_model_enter");
    scopes.pop_back();
    return {};
}

Result<> tutti_losses::add(int buffer) {
    if (!model->recorder->valid(buffer))
        return invalid("the loss is {}, which is not a buffer", buffer).advice("{}", handle_advice);
    const Buffer& b = model->recorder->buffer(buffer);
    if (b.device != model->device)
        return invalid("the {} of scope device_{} added the loss '{}' of another device",
                       model->builder, model->device, b.full_name())
            .advice("add losses of the builder's own device only");
    if (b.kind != TUTTI_ACTIVATION || (b.dtype != TUTTI_FLOAT32 && b.dtype != TUTTI_FLOAT64))
        return invalid("the loss '{}' is not an activation of float32 or float64", b.full_name())
            .advice("declare the loss with kind TUTTI_ACTIVATION and dtype float32 or float64");
    list.push_back(buffer);
    return {};
}
