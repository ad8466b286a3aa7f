#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>

#include "trainer/base/structs.h"
#include "trainer/parallel/value.h"

namespace tutti::trainer::parallel {
namespace {

/// The position of an item in its batch, for error messages: "batch['image'][0]".
using Path = std::string;

Path below(const Path& path, const ValueNode& node, std::size_t index) {
    return node.kind == TUTTI_VALUE_MAP ? fmt::format("{}['{}']", path, node.keys[index])
                                        : fmt::format("{}[{}]", path, index);
}

struct Samples {
    int64_t count = 0;
    Path of;
};

Result<int> axis_of(const tutti_array& array, int axis, const Path& path) {
    const int at = axis < 0 ? axis + array.dims : axis;
    if (at < 0 || at >= array.dims)
        return fail(TUTTI_ERR_INVALID, "split_and_load: {} has {} dimensions and no axis {}", path,
                    array.dims, axis)
            .advice("set opts.axis to an axis that every array of the batch has");
    return at;
}

/// The number of samples of the batch, which must be the same in each of its arrays.
Result<> count_samples(const ValueNode& node, int axis, const Path& path,
                       std::optional<Samples>& samples) {
    for (std::size_t i = 0; i < node.items.size(); ++i)
        TRAINER_TRY(count_samples(*node.items[i].node, axis, below(path, node, i), samples));
    if (node.kind != TUTTI_VALUE_ARRAY || node.array.dims == 0) return {};
    TRAINER_ASSIGN(const int at, axis_of(node.array, axis, path));
    const int64_t count = node.array.shape[at];
    if (!samples) samples = Samples{count, path};
    if (samples->count != count)
        return fail(TUTTI_ERR_INVALID,
                    "split_and_load: {} has {} samples along axis {}, but {} has {}", path, count,
                    axis, samples->of, samples->count)
            .advice("give every array of the batch the same number of samples");
    return {};
}

struct SampleRange {
    int device = 0;
    int64_t first = 0;
    int64_t count = 0;
};

/// An array as outer runs of samples; a device gets some consecutive samples of each run.
struct ArrayCut {
    std::size_t outer = 1;
    std::size_t sample_bytes = 0;
    std::size_t stride = 0;

    ArrayCut(const tutti_array& array, int axis) : sample_bytes(tutti_dtype_size(array.dtype)) {
        for (int d = 0; d < axis; ++d) outer *= static_cast<std::size_t>(array.shape[d]);
        for (int d = axis + 1; d < array.dims; ++d)
            sample_bytes *= static_cast<std::size_t>(array.shape[d]);
        stride = sample_bytes * static_cast<std::size_t>(array.shape[axis]);
    }
};

Result<> fill(const SplitPlan& plan, const SampleRange& share, void* to, const std::byte* from,
              const ArrayCut& cut) {
    const std::size_t row = static_cast<std::size_t>(share.count) * cut.sample_bytes;
    if (plan.opts.copy) {
        const tutti_status status =
            plan.opts.copy(plan.opts.user, share.device, to, from, cut.outer, row, cut.stride);
        if (status != TUTTI_OK)
            return fail_device(status, share.device,
                               "split_and_load: the copy of {} bytes to device {} failed: {}",
                               cut.outer * row, share.device, tutti_status_string(status))
                .advice("look at why the function opts.copy returned this status");
        return {};
    }
    for (std::size_t i = 0; i < cut.outer; ++i)
        std::memcpy(static_cast<std::byte*>(to) + i * row, from + i * cut.stride, row);
    return {};
}

Result<std::shared_ptr<void>> allocate(const SplitPlan& plan, int device, std::size_t bytes) {
    const auto none = [&] {
        return fail_device(TUTTI_ERR_NO_MEMORY, device,
                           "split_and_load: device {} has no memory for {} bytes", device, bytes)
            .advice("use a smaller batch, or free memory of that device");
    };
    if (!plan.opts.alloc) {
        void* data = std::malloc(std::max<std::size_t>(1, bytes));
        if (!data) return none();
        return std::shared_ptr<void>(data, std::free);
    }
    void* data = plan.opts.alloc(plan.opts.user, device, bytes);
    if (!data) return none();
    return std::shared_ptr<void>(data, [free = plan.opts.free, user = plan.opts.user,
                                        device](void* p) { free(user, device, p); });
}

Result<tutti_value> split_array(const tutti_value& value, const SplitPlan& plan,
                                const SampleRange& share) {
    const ValueNode& node = *value.node;
    const int axis = plan.opts.axis < 0 ? plan.opts.axis + node.array.dims : plan.opts.axis;
    const ArrayCut cut(node.array, axis);
    const auto* from = static_cast<const std::byte*>(node.array.data) +
                       static_cast<std::size_t>(share.first) * cut.sample_bytes;
    ValueNode part{.kind = TUTTI_VALUE_ARRAY, .array = node.array, .owner = value.node};
    part.array.shape[axis] = share.count;
    if (!plan.opts.alloc && cut.outer == 1) {
        part.array.data = const_cast<std::byte*>(from);  // a view, which keeps the batch alive
        return make_value(std::move(part));
    }
    const std::size_t bytes = cut.outer * static_cast<std::size_t>(share.count) * cut.sample_bytes;
    TRAINER_ASSIGN(std::shared_ptr<void> memory, allocate(plan, share.device, bytes));
    TRAINER_TRY(fill(plan, share, memory.get(), from, cut));
    part.array.data = memory.get();
    part.array.device = plan.opts.alloc ? share.device : node.array.device;
    part.owner = std::move(memory);
    return make_value(std::move(part));
}

Result<tutti_value> split_value(const tutti_value& value, const SplitPlan& plan,
                                const SampleRange& share) {
    const ValueNode& node = *value.node;
    if (node.kind == TUTTI_VALUE_PLAIN) return value;
    if (node.kind == TUTTI_VALUE_ARRAY)
        return node.array.dims == 0 ? Result<tutti_value>(value) : split_array(value, plan, share);
    ValueNode part{.kind = node.kind, .keys = node.keys};
    for (const tutti_value& item : node.items) {
        TRAINER_ASSIGN(tutti_value taken, split_value(item, plan, share));
        part.items.push_back(std::move(taken));
    }
    return make_value(std::move(part));
}

}  // namespace

Result<SplitPlan> read_split(const char* name, int devices, const tutti_split_opts* opts) {
    const tutti_split_opts defaults = TUTTI_SPLIT_OPTS_INIT;
    TRAINER_ASSIGN(const tutti_split_opts known,
                   read_struct(name, opts, defaults, "TUTTI_SPLIT_OPTS_INIT"));
    const int given = (known.alloc != nullptr) + (known.free != nullptr) + (known.copy != nullptr);
    if (given != 0 && given != 3)
        return fail(TUTTI_ERR_INVALID,
                    "split_and_load: {} of opts.alloc, opts.free and opts.copy are set", given)
            .advice("set alloc, free and copy, or none of them");
    return SplitPlan{devices, known};
}

Result<std::vector<tutti_value>> split(const tutti_value& batch, const SplitPlan& plan) {
    std::optional<Samples> samples;
    TRAINER_TRY(count_samples(*batch.node, plan.opts.axis, "batch", samples));
    if (samples && samples->count < 1)
        return fail(TUTTI_ERR_INVALID, "split_and_load: {} has no samples", samples->of)
            .advice("pass a batch of one sample or more");
    const int64_t count = samples ? samples->count : plan.devices;
    if (plan.opts.even && count % plan.devices != 0)
        return fail(TUTTI_ERR_INVALID, "split_and_load: {} devices cannot share {} samples evenly",
                    plan.devices, count)
            .advice("set opts.even to 0, or pass a multiple of {} samples", plan.devices);
    const int64_t used = std::min<int64_t>(plan.devices, count);
    std::vector<tutti_value> parts;
    int64_t first = 0;
    for (int64_t d = 0; d < used; ++d) {
        const int64_t own = count / used + (d < count % used ? 1 : 0);
        TRAINER_ASSIGN(tutti_value part,
                       split_value(batch, plan, {static_cast<int>(d), first, own}));
        parts.push_back(std::move(part));
        first += own;
    }
    return parts;
}

}  // namespace tutti::trainer::parallel
