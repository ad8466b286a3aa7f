// Memory for what was declared, and the collectives' pointers into it.
#include <algorithm>

#include "trainer/trainer.h"

using namespace tutti::trainer;

namespace {

constexpr std::size_t cache_line_bytes = 64;

// With external autograd there are no nodes that write gradients: buckets stand alone, in order.
Program only_tasks(Program& from, const std::vector<int>& tasks) {
    Program taken;
    std::erase_if(from.nodes, [&](Node& node) {
        if (node.task == none || std::ranges::find(tasks, node.task) == tasks.end()) return false;
        node.zero.clear();
        taken.nodes.push_back(std::move(node));
        return true;
    });
    return taken;
}

}  // namespace

std::vector<tutti_trainer::Group*> tutti_trainer::kept_groups() {
    std::vector<Group*> list;
    for (auto* groups : {&parameters_, &computed_, &state_})
        for (Group& group : *groups) list.push_back(&group);
    return list;
}

Result<> tutti_trainer::adopt_parameters() {
    const tutti_trainer& from = *settings_.parameters_of;
    if (trains_) return invalid("options.parameters_of is for models without an update builder");
    if (from.devices() != devices())
        return invalid("options.parameters_of has {} devices, this model {}", from.devices(),
                       devices());
    for (Buffer& buffer : recorder_.buffers()) {
        if (buffer.kind != TUTTI_PARAMETER && buffer.kind != TUTTI_COMPUTED) continue;
        TRAINER_ASSIGN(const Buffer* const found, from.find(buffer.device, buffer.name));
        const Buffer& other = *found;
        if (other.kind != buffer.kind || other.dtype != buffer.dtype || other.bytes != buffer.bytes)
            return invalid("'{}' is another buffer in options.parameters_of", buffer.full_name());
        buffer.data = other.data;
    }
    parameters_.clear();
    computed_.clear();
    synced_ = true;
    return {};
}

Result<> tutti_trainer::place_all() {
    const std::size_t alignment = settings_.check ? Checker::page_bytes : cache_line_bytes;
    if (settings_.parameters_of) TRAINER_TRY(adopt_parameters());
    for (Group* group : kept_groups()) TRAINER_TRY(place(*group, recorder_, devices_, alignment));
    for (Group& bucket : buckets_) TRAINER_TRY(place(bucket, recorder_, devices_, alignment));
    if (settings_.fixed_order)
        for (Group& bucket : buckets_) TRAINER_TRY(place_sums(bucket, devices_));
    TRAINER_TRY(place_rest());
    for (const auto& [b, value] : recorder_.initial)
        TRAINER_TRY(device(recorder_.buffer(b).device)
                        .copy(recorder_.buffer(b).data, &value, sizeof(value)));
    if (trains_ && !synchronous()) {
        averaging_ = std::make_unique<Averaging>(parameters_, devices_);
        TRAINER_TRY(averaging_->allocate());
    }
    if (trains_ && settings_.fixed_order && settings_.micro_batches > 1) {
        micro_sums_ = std::make_unique<MicroSums>(buckets_, devices_);
        TRAINER_TRY(micro_sums_->allocate(settings_.micro_batches));
    }
    return {};
}

// Activations and their gradients: with memory of their own, or by turns in the same.
Result<> tutti_trainer::place_rest() {
    const bool share = (settings_.share_memory || !trains_) && !settings_.check;
    std::vector<bool> shareable(recorder_.buffers().size());
    for (std::size_t b = 0; b < shareable.size(); ++b) {
        const Buffer& buffer = recorder_.buffers()[b];
        shareable[b] = share && buffer.data == nullptr && !(buffer.flags & TUTTI_KEEP) &&
                       (buffer.kind == TUTTI_ACTIVATION || buffer.kind == TUTTI_GRADIENT) &&
                       (buffer.gradient_of == none ||
                        recorder_.buffer(buffer.gradient_of).kind != TUTTI_PARAMETER);
    }
    for (const auto& losses : recorder_.losses)
        for (int loss : losses) shareable[static_cast<std::size_t>(loss)] = false;
    const std::size_t alignment = settings_.check ? Checker::page_bytes : cache_line_bytes;
    for (int d = 0; d < devices(); ++d) {
        const std::vector<Lifetime> shared = lifetimes_of(last_, recorder_, d, shareable);
        std::vector<std::size_t> offsets;
        std::size_t bytes = pack(recorder_, shared, alignment, offsets);
        std::vector<std::pair<int, std::size_t>> at;
        for (std::size_t i = 0; i < shared.size(); ++i) {
            at.emplace_back(shared[i].buffer, offsets[i]);
            recorder_.buffer(shared[i].buffer).shares_memory = true;
        }
        for (int b = 0; b < static_cast<int>(recorder_.buffers().size()); ++b) {
            const Buffer& buffer = recorder_.buffer(b);
            if (buffer.device != d || buffer.data || buffer.shares_memory) continue;
            at.emplace_back(b, bytes);
            bytes += round_up(buffer.bytes, alignment);
        }
        TRAINER_ASSIGN(DeviceMemory memory, DeviceMemory::make(device(d), bytes));
        rest_.push_back(std::move(memory));
        for (const auto& [b, offset] : at) recorder_.buffer(b).data = rest_.back().data() + offset;
    }
    return {};
}

// The sum is made in float32 and rounded once, when all have been added.
void tutti_trainer::bind_sums(int index, const Group& bucket) {
    Task& task = tasks_[static_cast<std::size_t>(index)];
    task.narrow = task.in;
    task.narrow_dtype = bucket.dtype;
    task.dtype = bucket.sums_dtype();
    task.widens = !micro_sums_;  // else those are there
    for (std::size_t d = 0; d < devices_.size(); ++d) task.in[d] = task.out[d] = bucket.sums(d);
}

Result<> tutti_trainer::bind_tasks() {
    const auto bind_group = [this](int index, const Group& group, std::vector<void*> pointers) {
        Task& task = tasks_[static_cast<std::size_t>(index)];
        task.count = group.count();
        task.in = task.out = std::move(pointers);
    };
    for (const Binding& binding : bindings_) {
        Task& task = tasks_[static_cast<std::size_t>(binding.task)];
        for (int b : binding.in) task.in.push_back(recorder_.buffer(b).data);
        for (int b : binding.out) task.out.push_back(recorder_.buffer(b).data);
    }
    for (std::size_t b = 0; b < bucket_tasks_.size(); ++b) {
        bind_group(bucket_tasks_[b], buckets_[b], buckets_[b].pointers());
        if (!buckets_[b].wide.empty()) bind_sums(bucket_tasks_[b], buckets_[b]);
    }
    for (const GroupTask& use : group_tasks_)
        bind_group(use.task, *use.group, use.group->pointers());
    if (averaging_) {
        std::size_t g = 0;
        for (const Node& node : last_.nodes)
            if (node.task != none && node.name.starts_with("average of ") &&
                tasks_[static_cast<std::size_t>(node.task)].in.empty()) {
                bind_group(node.task, parameters_[g], averaging_->deltas(g));
                ++g;
            }
    }
    if (!settings_.parameters_of)
        for (Group* group : kept_groups()) {
            sync_tasks_.push_back(add_task({.name = group->name,
                                            .operation = sync_name,
                                            .kind = TUTTI_COLLECTIVE_BROADCAST,
                                            .dtype = group->dtype}));
            bind_group(sync_tasks_.back(), *group, group->pointers());
        }
    for (Task& task : tasks_) TRAINER_TRY(collectives_.prepare(task));
    if (!settings_.external) return {};
    std::vector<std::vector<int>> members;
    for (const Group& bucket : buckets_) {
        members.emplace_back();
        for (const auto& of_device : bucket.members)
            members.back().insert(members.back().end(), of_device.begin(), of_device.end());
    }
    stream_ = std::make_unique<GradientStream>(engine_, only_tasks(last_, bucket_tasks_),
                                               std::move(members), recorder_.buffers().size(),
                                               settings_.max_in_flight);
    for (Node& node : last_.nodes) node.zero.clear();
    return {};
}
