#include "trainer/sync/averaging.h"

namespace tutti::trainer {

void Averaging::append_on_devices(Program& program, std::size_t group, const char* what, int every,
                                  DeltaFunction function) {
    for (std::size_t d = 0; d < devices_.size(); ++d) {
        ProgramNode node =
            group_node(parameters_[group], what + parameters_[group].name, static_cast<int>(d));
        node.own = [this, group, d, every, function](const RunContext& context) {
            return context.is_turn(every) ? (this->*function)(group, d) : Result<>();
        };
        program.nodes.push_back(std::move(node));
    }
}

void Averaging::append_to(Program& program, int every) {
    for (std::size_t g = 0; g < parameters_.size(); ++g) {
        const BufferGroup& group = parameters_[g];
        append_on_devices(program, g, "delta of ", every, &Averaging::compute_delta);
        ProgramNode average = group_node(group, "average of " + group.name, none);
        average.task = tasks_.add({.name = average.name,
                                   .op = TUTTI_AVG,
                                   .dtype = sum_dtype(group.dtype),
                                   .every = every});
        group_tasks_.push_back(average.task);
        program.nodes.push_back(std::move(average));
        append_on_devices(program, g, "step of ", every, &Averaging::apply_delta);
    }
}

Result<> Averaging::allocate() {
    for (const BufferGroup& group : parameters_) {
        Pieces& pieces = pieces_.emplace_back();
        for (Device* device : devices_) {
            for (auto* list : {&pieces.snapshot, &pieces.delta}) {
                const std::size_t bytes = group.count() * tutti_dtype_size(sum_dtype(group.dtype));
                TRAINER_ASSIGN(DeviceAllocation piece, DeviceAllocation::make(*device, bytes));
                list->push_back(std::move(piece));
            }
        }
    }
    return {};
}

Result<> Averaging::take_snapshot() {
    for (std::size_t g = 0; g < pieces_.size(); ++g)
        for (std::size_t d = 0; d < devices_.size(); ++d)
            TRAINER_TRY(widen(g, d, pieces_[g].snapshot[d].data()));
    return {};
}

Result<> Averaging::widen(std::size_t g, std::size_t d, void* to) {
    const BufferGroup& group = parameters_[g];
    return devices_[d]->convert(group.count(), group.dtype, group.memory[d].data(),
                                sum_dtype(group.dtype), to);
}

Result<> Averaging::compute_delta(std::size_t g, std::size_t d) {
    const BufferGroup& group = parameters_[g];
    void* delta = pieces_[g].delta[d].data();
    TRAINER_TRY(widen(g, d, delta));
    return devices_[d]->axpby(group.count(), sum_dtype(group.dtype), -1,
                              pieces_[g].snapshot[d].data(), 1, delta);
}

Result<> Averaging::apply_delta(std::size_t g, std::size_t d) {
    const BufferGroup& group = parameters_[g];
    const tutti_dtype wide = sum_dtype(group.dtype);
    void* snapshot = pieces_[g].snapshot[d].data();
    TRAINER_TRY(
        devices_[d]->axpby(group.count(), wide, 1, pieces_[g].delta[d].data(), 1, snapshot));
    TRAINER_TRY(
        devices_[d]->convert(group.count(), wide, snapshot, group.dtype, group.memory[d].data()));
    // The next delta is relative to the rounded parameters.
    return is_narrow(group.dtype) ? widen(g, d, snapshot) : Result<>();
}

void Averaging::bind() {
    for (std::size_t g = 0; g < group_tasks_.size(); ++g) {
        std::vector<void*> deltas;
        for (const DeviceAllocation& delta : pieces_[g].delta) deltas.push_back(delta.data());
        tasks_.bind_group(group_tasks_[g], parameters_[g], std::move(deltas));
    }
}

}  // namespace tutti::trainer
