#include "trainer/plan/backward.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "trainer/device/device.h"

namespace tutti::trainer {
namespace {

bool has_backward(const DeclaredOperation& op) {
    return op.backward != nullptr || op.collective.has_value();
}

using Marks = std::vector<bool>;

bool any(const Marks& marks, const std::vector<int>& list) {
    return std::ranges::any_of(list, [&](int b) { return marks[static_cast<std::size_t>(b)]; });
}

// Refused: with two writers, one gradient would stand for two values.
Result<> refuse_second_writer(const ModelRecorder& recorder, const DeclaredOperation& op, int b,
                              std::vector<const DeclaredOperation*>& writers) {
    const DeclaredOperation*& writer = writers[static_cast<std::size_t>(b)];
    if (std::ranges::find(op.reads, b) != op.reads.end())
        return invalid("operation '{}' reads and writes '{}', which has a gradient", op.full_name(),
                       recorder.buffer(b).name)
            .advice("give the result a buffer of its own");
    if (writer && writer != &op)
        return invalid("operations '{}' and '{}' both write '{}', which has a gradient",
                       writer->full_name(), op.full_name(), recorder.buffer(b).name)
            .advice("give each of the two operations a buffer of its own");
    writer = &op;
    return {};
}

/// Marks the buffers that depend on a parameter, or on a buffer whose gradient was declared.
Result<Marks> depends_on_parameters(const ModelRecorder& recorder) {
    Marks marks(recorder.buffers().size());
    std::vector<const DeclaredOperation*> writers(marks.size());
    for (std::size_t b = 0; b < marks.size(); ++b)
        marks[b] =
            recorder.buffers()[b].kind == TUTTI_PARAMETER || recorder.buffers()[b].gradient != none;
    for (const DeclaredOperation& op : recorder.operations()) {
        if (op.phase != BuilderPhase::forward || !has_backward(op) || !any(marks, op.reads))
            continue;
        for (int b : op.writes) {
            const Buffer& buffer = recorder.buffer(b);
            if (buffer.kind != TUTTI_ACTIVATION || !is_floating(buffer.dtype)) continue;
            TRAINER_TRY(refuse_second_writer(recorder, op, b, writers));
            marks[static_cast<std::size_t>(b)] = true;
        }
    }
    return marks;
}

Result<Marks> leads_to_loss(const ModelRecorder& recorder, const Marks& depends) {
    Marks marks(recorder.buffers().size());
    for (const auto& losses : recorder.losses)
        for (int loss : losses) {
            if (!depends[static_cast<std::size_t>(loss)])
                return invalid(
                           "the loss '{}' depends on no parameter through operations that have a "
                           "backward function",
                           recorder.buffer(loss).full_name())
                    .advice("set spec.backward of the operations between parameters and loss");
            marks[static_cast<std::size_t>(loss)] = true;
        }
    const auto& operations = recorder.operations();
    for (auto op = operations.rbegin(); op != operations.rend(); ++op) {
        if (op->phase != BuilderPhase::forward || !has_backward(*op) || !any(marks, op->writes))
            continue;
        for (int b : op->reads)
            if (depends[static_cast<std::size_t>(b)]) marks[static_cast<std::size_t>(b)] = true;
    }
    return marks;
}

Result<int> declare(ModelRecorder& recorder, int of, const std::string& name, bool is_gradient) {
    const Buffer& like = recorder.buffer(of);
    Buffer made{.name = name,
                .device = like.device,
                .kind = TUTTI_GRADIENT,
                .dtype = like.dtype,
                .bytes = like.bytes,
                .shape = like.shape,
                .flags = like.flags & TUTTI_DISTRIBUTED};
    if (is_gradient) made.gradient_of = of;
    TRAINER_ASSIGN(const int index, recorder.add(std::move(made)));
    if (is_gradient) recorder.buffer(of).gradient = index;
    return index;
}

ProgramNode seed_of(const ModelRecorder& recorder, int loss, Device* device) {
    const Buffer& buffer = recorder.buffer(loss);
    auto ones = std::make_shared<std::vector<std::byte>>(buffer.bytes);
    const std::size_t element = tutti_dtype_size(buffer.dtype);
    for (std::size_t at = 0; at < buffer.bytes; at += element) {
        const float single = 1;
        const double wide = 1;
        std::memcpy(ones->data() + at,
                    buffer.dtype == TUTTI_FLOAT32 ? static_cast<const void*>(&single) : &wide,
                    element);
    }
    ProgramNode node{.name = buffer.full_name() + "'s gradient", .device = buffer.device};
    node.writes = {buffer.gradient};
    node.of_samples = true;
    const ModelRecorder* all = &recorder;
    const int gradient = buffer.gradient;
    node.own = [all, gradient, ones, device](const RunContext&) {
        return device->copy(all->buffer(gradient).data, ones->data(), ones->size());
    };
    return node;
}

struct Reversed {
    CollectiveCall call;
    double scale = 1;  // of the sum that is added to the input's gradient
    bool communicates = true;
};

Result<Reversed> reverse(const CollectiveCall& call, const std::string& name, int replicas) {
    if (call.kind != TUTTI_COLLECTIVE_BROADCAST && call.kind != TUTTI_COLLECTIVE_ALLGATHER &&
        call.op != TUTTI_SUM && call.op != TUTTI_AVG) {
        const char* op = tutti_op_name(call.op);
        return invalid("collective '{}' with operator {} has no gradient", name,
                       op ? op : "of unknown name")
            .advice("use TUTTI_SUM or TUTTI_AVG");
    }
    const bool averaged = call.op == TUTTI_AVG;
    Reversed back{.call = {.op = TUTTI_SUM, .root = call.root}};
    if (averaged) back.scale = 1.0 / replicas;
    switch (call.kind) {
        case TUTTI_COLLECTIVE_ALLREDUCE:
            back.communicates = call.backward == TUTTI_BACKWARD_SUM;
            break;
        case TUTTI_COLLECTIVE_BROADCAST:
            back.call.kind = TUTTI_COLLECTIVE_REDUCE;
            back.scale = 1;
            break;
        case TUTTI_COLLECTIVE_REDUCE:
            back.call.kind = TUTTI_COLLECTIVE_BROADCAST;
            break;
        case TUTTI_COLLECTIVE_ALLGATHER:
            back.call.kind = TUTTI_COLLECTIVE_REDUCE_SCATTER;
            back.scale = 1;
            break;
        case TUTTI_COLLECTIVE_REDUCE_SCATTER:
            back.call.kind = TUTTI_COLLECTIVE_ALLGATHER;
            break;
    }
    return back;
}

ProgramNode addition(const ModelRecorder& recorder, const std::string& name, int from, int to,
                     double scale, Device* device) {
    ProgramNode node{.name = name, .device = recorder.buffer(to).device};
    node.reads = {from};
    node.writes = {to};
    const ModelRecorder* all = &recorder;
    node.own = [all, from, to, scale, device](const RunContext&) {
        const Buffer& target = all->buffer(to);
        return device->axpby(target.count(), target.dtype, scale, all->buffer(from).data, 1,
                             target.data);
    };
    return node;
}

// Appends the collective of the gradients, then the addition of its result to the input's gradient.
Result<> append_reversed(DeviceItems& items, ModelRecorder& recorder, const DeclaredOperation& op,
                         int replica, int replicas, Device* device) {
    const int in = op.reads.front();
    const int out_gradient = recorder.buffer(op.writes.front()).gradient;
    TRAINER_ASSIGN(const Reversed back, reverse(*op.collective, op.full_name(), replicas));
    int from = out_gradient;
    if (back.communicates) {
        TRAINER_ASSIGN(from, declare(recorder, in, op.name + "_backward", false));
        ProgramNode node{.name = op.full_name() + ", backward", .device = op.device};
        node.reads = {out_gradient};
        node.writes = {from};
        node.of_samples = true;
        items.push_back({std::move(node), back.call});
    }
    if (back.call.kind == TUTTI_COLLECTIVE_REDUCE && back.call.root != replica) return {};
    items.push_back({addition(recorder, op.full_name() + ", sum of gradients", from,
                              recorder.buffer(in).gradient, back.scale, device),
                     {}});
    return {};
}

DeviceItem reversed_operation(const ModelRecorder& recorder, const DeclaredOperation& op) {
    ProgramNode node{.name = op.full_name() + ", backward", .device = op.device};
    node.reads = op.reads;
    node.reads.insert(node.reads.end(), op.writes.begin(), op.writes.end());
    for (int b : op.writes)
        if (const int g = recorder.buffer(b).gradient; g != none) node.reads.push_back(g);
    for (int b : op.reads) {
        const Buffer& read = recorder.buffer(b);
        if (read.gradient != none) node.writes.push_back(read.gradient);
        if (read.sparse())
            node.writes.insert(node.writes.end(), {read.sparse_rows, read.sparse_count});
    }
    node.call = op.backward;
    node.user = op.user;
    node.of_samples = true;
    return {std::move(node), {}};
}

std::function<Result<>(const RunContext&)> copy_of(const ModelRecorder& recorder,
                                                   const DeclaredOperation& op,
                                                   const std::vector<Device*>& devices) {
    const ModelRecorder* all = &recorder;
    const int from = op.reads.front(), to = op.writes.front();
    Device* here = devices[static_cast<std::size_t>(op.device)];
    Device* there = devices[static_cast<std::size_t>(recorder.buffer(from).device)];
    return [=](const RunContext&) {
        const Buffer& target = all->buffer(to);
        return here->copy_from(*there, target.data, all->buffer(from).data, target.bytes);
    };
}

}  // namespace

Result<> declare_gradients(ModelRecorder& recorder, bool external) {
    Marks wanted(recorder.buffers().size());
    if (!external) {
        TRAINER_ASSIGN(const Marks depends, depends_on_parameters(recorder));
        TRAINER_ASSIGN(wanted, leads_to_loss(recorder, depends));
    }
    for (int b = 0; b < static_cast<int>(wanted.size()); ++b) {
        const Buffer& buffer = recorder.buffer(b);
        if (buffer.gradient != none || buffer.gradient_of != none) continue;
        if (buffer.kind == TUTTI_PARAMETER && !is_floating(buffer.dtype))
            return invalid("parameter '{}' is of {}, which has no gradient", buffer.full_name(),
                           tutti_dtype_name(buffer.dtype))
                .advice("use a floating-point dtype, or kind TUTTI_COMPUTED");
        if (wanted[static_cast<std::size_t>(b)] || buffer.kind == TUTTI_PARAMETER)
            TRAINER_TRY(declare(recorder, b, buffer.name + "_grad", true));
    }
    return {};
}

DeviceItems items_of(const ModelRecorder& recorder, int device, BuilderPhase phase,
                     const std::vector<Device*>& devices) {
    DeviceItems items;
    for (const DeclaredOperation& op : recorder.operations()) {
        if (op.device != device || op.phase != phase) continue;
        ProgramNode node{.name = op.full_name(),
                         .device = device,
                         .reads = op.reads,
                         .writes = op.writes,
                         .call = op.forward,
                         .user = op.user};
        node.of_samples = phase != BuilderPhase::update;
        if (op.copies) node.own = copy_of(recorder, op, devices);
        items.push_back({std::move(node), op.collective});
    }
    return items;
}

Result<DeviceItems> backward_items(ModelRecorder& recorder, int device, int replica, int replicas,
                                   const std::vector<Device*>& devices) {
    DeviceItems items;
    Device* here = devices[static_cast<std::size_t>(device)];
    for (int loss : recorder.losses[static_cast<std::size_t>(device)])
        items.push_back({seed_of(recorder, loss, here), {}});
    const auto& operations = recorder.operations();
    for (auto op = operations.rbegin(); op != operations.rend(); ++op) {
        if (op->device != device || op->phase != BuilderPhase::forward || !has_backward(*op))
            continue;
        const auto has_gradient = [&](int b) { return recorder.buffer(b).gradient != none; };
        if (!std::ranges::any_of(op->writes, has_gradient) ||
            !std::ranges::any_of(op->reads, has_gradient))
            continue;
        if (op->collective)
            TRAINER_TRY(append_reversed(items, recorder, *op, replica, replicas, here));
        else
            items.push_back(reversed_operation(recorder, *op));
    }
    return items;
}

}  // namespace tutti::trainer
