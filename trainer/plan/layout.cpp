#include "trainer/plan/layout.h"

#include <algorithm>

namespace tutti::trainer {
namespace {

// The buffer of the same name on each device.
std::vector<std::vector<int>> on_all_devices(const ModelRecorder& recorder,
                                             const std::vector<int>& of_first) {
    std::vector<std::vector<int>> members(static_cast<std::size_t>(recorder.devices()));
    for (int d = 0; d < recorder.devices(); ++d)
        for (int b : of_first) {
            const int other = recorder.find(d, recorder.buffer(b).name);
            members[static_cast<std::size_t>(d)].push_back(other);
        }
    return members;
}

}  // namespace

std::vector<void*> BufferGroup::pointers() const {
    std::vector<void*> list;
    for (const DeviceAllocation& piece : memory) list.push_back(piece.data());
    return list;
}

std::vector<int> BufferGroup::all_members() const {
    std::vector<int> list;
    for (const auto& of_device : members)
        list.insert(list.end(), of_device.begin(), of_device.end());
    return list;
}

ProgramNode group_node(const BufferGroup& group, const std::string& name, int device) {
    ProgramNode node{.name = name, .device = device};
    node.writes =
        device == none ? group.all_members() : group.members[static_cast<std::size_t>(device)];
    node.reads = node.writes;
    return node;
}

std::vector<BufferGroup> make_buckets(const ModelRecorder& recorder, const BucketSizes& sizes) {
    std::vector<std::vector<int>> parameters;  // by bucket
    std::vector<int> declared = recorder.of_kind(0, TUTTI_PARAMETER);
    std::size_t filled = 0;
    for (auto at = declared.rbegin(); at != declared.rend(); ++at) {
        const Buffer& parameter = recorder.buffer(*at);
        if (!parameter.bucketed()) continue;
        const std::size_t limit = parameters.size() <= 1 ? sizes.first_bytes : sizes.bytes;
        const bool fits = !parameters.empty() && filled + parameter.bytes <= limit &&
                          recorder.buffer(parameters.back().back()).dtype == parameter.dtype;
        if (!fits) {
            parameters.emplace_back();
            filled = 0;
        }
        parameters.back().push_back(*at);
        filled += parameter.bytes;
    }
    std::vector<BufferGroup> buckets;
    for (const auto& list : parameters) {
        BufferGroup bucket{.name = fmt::format("bucket {}", buckets.size()),
                           .dtype = recorder.buffer(list.front()).dtype,
                           .members = on_all_devices(recorder, list)};
        for (auto& members : bucket.members)
            for (int& member : members) member = recorder.buffer(member).gradient;
        buckets.push_back(std::move(bucket));
    }
    return buckets;
}

std::vector<BufferGroup> make_groups(const ModelRecorder& recorder, tutti_buffer_kind kind) {
    std::vector<BufferGroup> groups;
    const char* what = kind == TUTTI_PARAMETER  ? "parameters"
                       : kind == TUTTI_COMPUTED ? "computed buffers"
                                                : "state";
    for (tutti_dtype dtype = 0; tutti_dtype_name(dtype); ++dtype) {
        std::vector<int> list;
        for (int b : recorder.of_kind(0, kind))
            if (!recorder.buffer(b).distributed() && recorder.buffer(b).dtype == dtype)
                list.push_back(b);
        if (list.empty()) continue;
        groups.push_back({.name = fmt::format("{} of {}", what, tutti_dtype_name(dtype)),
                          .dtype = dtype,
                          .members = on_all_devices(recorder, list)});
    }
    return groups;
}

Result<> place_group(BufferGroup& group, ModelRecorder& recorder,
                     const std::vector<Device*>& devices, std::size_t alignment) {
    for (std::size_t d = 0; d < devices.size(); ++d) {
        std::size_t bytes = 0;
        for (int b : group.members[d]) bytes += round_up(recorder.buffer(b).bytes, alignment);
        group.bytes = bytes;
        TRAINER_ASSIGN(DeviceAllocation memory, DeviceAllocation::make(*devices[d], bytes));
        std::size_t offset = 0;
        for (int b : group.members[d]) {
            recorder.buffer(b).data = memory.data() + offset;
            offset += round_up(recorder.buffer(b).bytes, alignment);
        }
        group.memory.push_back(std::move(memory));
    }
    return {};
}

Result<> place_sums(BufferGroup& group, const std::vector<Device*>& devices) {
    if (!is_narrow(group.dtype)) return {};
    for (Device* device : devices) {
        TRAINER_ASSIGN(DeviceAllocation memory,
                       DeviceAllocation::make(*device, group.count() * sizeof(float)));
        group.wide.push_back(std::move(memory));
    }
    return {};
}

std::size_t pack(const ModelRecorder& recorder, const std::vector<Lifetime>& lifetimes,
                 std::size_t alignment, std::vector<std::size_t>& offsets) {
    std::vector<std::size_t> order(lifetimes.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto size = [&](std::size_t i) {
        return round_up(recorder.buffer(lifetimes[i].buffer).bytes, alignment);
    };
    std::ranges::stable_sort(order, [&](auto a, auto b) { return size(a) > size(b); });
    offsets.assign(lifetimes.size(), 0);
    std::vector<std::size_t> placed;
    std::size_t total = 0;
    for (std::size_t i : order) {
        std::vector<std::pair<std::size_t, std::size_t>> taken;  // begin, end
        for (std::size_t other : placed)
            if (lifetimes[other].first <= lifetimes[i].last &&
                lifetimes[i].first <= lifetimes[other].last)
                taken.emplace_back(offsets[other], offsets[other] + size(other));
        std::ranges::sort(taken);
        std::size_t at = 0;
        for (const auto& [begin, end] : taken) {
            if (begin >= at + size(i)) break;
            at = std::max(at, end);
        }
        offsets[i] = at;
        placed.push_back(i);
        total = std::max(total, at + size(i));
    }
    return total;
}

std::vector<Lifetime> lifetimes_of(const Program& program, const ModelRecorder& recorder,
                                   int device, const std::vector<bool>& shareable) {
    std::vector<Lifetime> by_buffer(recorder.buffers().size());
    for (int n = 0; n < static_cast<int>(program.nodes.size()); ++n) {
        const ProgramNode& node = program.nodes[static_cast<std::size_t>(n)];
        for (const auto* list : {&node.reads, &node.writes, &node.zero})
            for (int b : *list) {
                if (!shareable[static_cast<std::size_t>(b)] || recorder.buffer(b).device != device)
                    continue;
                Lifetime& life = by_buffer[static_cast<std::size_t>(b)];
                if (life.buffer == none) life = {b, n, n};
                life.last = n;
            }
    }
    std::erase_if(by_buffer, [](const Lifetime& life) { return life.buffer == none; });
    return by_buffer;
}

}  // namespace tutti::trainer
