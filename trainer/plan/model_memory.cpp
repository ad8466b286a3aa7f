#include "trainer/plan/model_memory.h"

#include <algorithm>

namespace tutti::trainer {

void ModelMemory::form_groups() {
    for (auto [kind, groups] : {std::pair{TUTTI_PARAMETER, &parameters_},
                                {TUTTI_COMPUTED, &computed_},
                                {TUTTI_STATE, &state_}})
        for (BufferGroup& group : make_groups(recorder_, kind)) groups->push_back(std::move(group));
}

void ModelMemory::form_buckets(const BucketSizes& sizes) {
    for (BufferGroup& bucket : make_buckets(recorder_, sizes))
        buckets_.push_back(std::move(bucket));
}

std::vector<BufferGroup*> ModelMemory::kept_groups() {
    std::vector<BufferGroup*> list;
    for (auto* groups : {&parameters_, &computed_, &state_})
        for (BufferGroup& group : *groups) list.push_back(&group);
    return list;
}

Result<> ModelMemory::adopt_parameters(const ModelRecorder& from) {
    if (from.devices() != recorder_.devices())
        return invalid("the trainer of options.parameters_of has {} devices, this model {}",
                       from.devices(), recorder_.devices())
            .advice("build both with the same number of devices");
    for (Buffer& buffer : recorder_.buffers()) {
        if (buffer.kind != TUTTI_PARAMETER && buffer.kind != TUTTI_COMPUTED) continue;
        TRAINER_ASSIGN(const Buffer* const found, from.look_up(buffer.device, buffer.name));
        const Buffer& other = *found;
        if (other.kind != buffer.kind || other.dtype != buffer.dtype || other.bytes != buffer.bytes)
            return invalid(
                       "buffer '{}' has another kind, dtype or size in the trainer of "
                       "options.parameters_of",
                       buffer.full_name())
                .advice("declare it alike in both models");
        buffer.data = other.data;
    }
    parameters_.clear();
    computed_.clear();
    return {};
}

Result<> ModelMemory::place(const Program& program) {
    const std::size_t alignment = options_.alignment;
    for (BufferGroup* group : kept_groups())
        TRAINER_TRY(place_group(*group, recorder_, devices_, alignment));
    for (BufferGroup& bucket : buckets_)
        TRAINER_TRY(place_group(bucket, recorder_, devices_, alignment));
    if (options_.sums)
        for (BufferGroup& bucket : buckets_) TRAINER_TRY(place_sums(bucket, devices_));
    const std::vector<bool> shareable = shareable_buffers();
    for (int d = 0; d < recorder_.devices(); ++d) TRAINER_TRY(place_arena(program, d, shareable));
    return write_initial_values();
}

Result<> ModelMemory::write_initial_values() {
    for (const auto& [b, value] : recorder_.initial) {
        const Buffer& buffer = recorder_.buffer(b);
        Device& device = *devices_[static_cast<std::size_t>(buffer.device)];
        TRAINER_TRY(device.copy(buffer.data, &value, sizeof(value)));
    }
    return {};
}

std::vector<bool> ModelMemory::shareable_buffers() const {
    std::vector<bool> shareable(recorder_.buffers().size());
    for (std::size_t b = 0; b < shareable.size(); ++b) {
        const Buffer& buffer = recorder_.buffers()[b];
        shareable[b] = options_.shares && buffer.data == nullptr && !(buffer.flags & TUTTI_KEEP) &&
                       (buffer.kind == TUTTI_ACTIVATION || buffer.kind == TUTTI_GRADIENT) &&
                       (buffer.gradient_of == none ||
                        recorder_.buffer(buffer.gradient_of).kind != TUTTI_PARAMETER);
    }
    for (const auto& losses : recorder_.losses)
        for (int loss : losses) shareable[static_cast<std::size_t>(loss)] = false;
    return shareable;
}

// The buffers that share memory come first, then the others one after another.
Result<> ModelMemory::place_arena(const Program& program, int d,
                                  const std::vector<bool>& shareable) {
    const std::vector<Lifetime> shared = lifetimes_of(program, recorder_, d, shareable);
    std::vector<std::size_t> offsets;
    std::size_t bytes = pack(recorder_, shared, options_.alignment, offsets);
    std::vector<std::pair<int, std::size_t>> at;
    for (std::size_t i = 0; i < shared.size(); ++i) {
        at.emplace_back(shared[i].buffer, offsets[i]);
        recorder_.buffer(shared[i].buffer).shares_memory = true;
    }
    for (int b = 0; b < static_cast<int>(recorder_.buffers().size()); ++b) {
        const Buffer& buffer = recorder_.buffer(b);
        if (buffer.device != d || buffer.data || buffer.shares_memory) continue;
        at.emplace_back(b, bytes);
        bytes += round_up(buffer.bytes, options_.alignment);
    }
    TRAINER_ASSIGN(DeviceAllocation arena,
                   DeviceAllocation::make(*devices_[static_cast<std::size_t>(d)], bytes));
    arenas_.push_back(std::move(arena));
    for (const auto& [b, offset] : at) recorder_.buffer(b).data = arenas_.back().data() + offset;
    return {};
}

std::size_t ModelMemory::device_bytes() const {
    std::size_t most = 0;
    for (std::size_t d = 0; d < devices_.size(); ++d) {
        std::size_t bytes = arenas_[d].bytes();
        for (const auto* groups : {&parameters_, &computed_, &state_, &buckets_})
            for (const BufferGroup& group : *groups)
                bytes += group.memory[d].bytes() + (group.wide.empty() ? 0 : group.sums_bytes());
        most = std::max(most, bytes);
    }
    return most;
}

}  // namespace tutti::trainer
