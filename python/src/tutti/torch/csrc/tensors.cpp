#include "tensors.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>
#include <numeric>

namespace tutti_torch {
namespace {

at::Tensor scratch(const at::Tensor& like, int64_t count) {
    return at::empty({count}, like.options().memory_format(std::nullopt));
}

// Whether they lie one after the other in memory, like one tensor.
bool adjacent(const std::vector<at::Tensor>& tensors) {
    const char* expected = nullptr;
    for (const at::Tensor& tensor : tensors) {
        if (!is_plain(tensor)) return false;
        if (tensor.numel() == 0) continue;
        const char* begin = static_cast<const char*>(tensor.const_data_ptr());
        if (expected && begin != expected) return false;
        expected = begin + tensor.nbytes();
    }
    return true;
}

void* begin_of(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors)
        if (tensor.numel() > 0) return tensor.data_ptr();
    return nullptr;
}

int64_t total(const std::vector<at::Tensor>& tensors) {
    int64_t count = 0;
    for (const at::Tensor& tensor : tensors) count += tensor.numel();
    return count;
}

}  // namespace

const void* Memory::input(const at::Tensor& tensor) {
    at::Tensor source = is_plain(tensor) ? tensor : packed({tensor});
    const void* data = source.const_data_ptr();
    operation_.keep(std::move(source));
    return data;
}

void* Memory::output(const at::Tensor& tensor) {
    at::Tensor target = is_plain(tensor) ? tensor : spread({tensor});
    void* data = target.data_ptr();
    operation_.keep(std::move(target));
    return data;
}

void* Memory::in_place(const at::Tensor& tensor) {
    if (is_plain(tensor)) {
        operation_.keep(tensor);
        return tensor.data_ptr();
    }
    return in_place(std::vector<at::Tensor>{tensor});
}

const void* Memory::inputs(const std::vector<at::Tensor>& tensors) {
    if (adjacent(tensors)) {
        for (const at::Tensor& tensor : tensors) operation_.keep(tensor);
        return begin_of(tensors);
    }
    at::Tensor flat = packed(tensors);
    const void* data = flat.const_data_ptr();
    operation_.keep(std::move(flat));
    return data;
}

void* Memory::outputs(const std::vector<at::Tensor>& tensors) {
    if (adjacent(tensors)) {
        for (const at::Tensor& tensor : tensors) operation_.keep(tensor);
        return begin_of(tensors);
    }
    at::Tensor flat = spread(tensors);
    void* data = flat.data_ptr();
    operation_.keep(std::move(flat));
    return data;
}

void* Memory::in_place(const std::vector<at::Tensor>& tensors) {
    if (adjacent(tensors)) return outputs(tensors);
    at::Tensor flat = packed(tensors);
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
        operation_.copy_afterwards(Slice(tensor), Slice(flat, begin, tensor.numel()));
        begin += tensor.numel();
    }
    void* data = flat.data_ptr();
    operation_.keep(std::move(flat));
    return data;
}

const void* Memory::input_blocks(const std::vector<at::Tensor>& tensors, int64_t blocks) {
    if (tensors.size() == 1) return input(tensors.front());
    const int64_t stride = total(tensors) / blocks;
    at::Tensor flat = scratch(tensors.front(), stride * blocks);
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
        const at::Tensor source = is_plain(tensor) ? tensor : packed({tensor});
        const int64_t count = tensor.numel() / blocks;
        for (int64_t i = 0; i < blocks; ++i)
            copy_slice({flat, i * stride + begin, count}, {source, i * count, count});
        begin += count;
    }
    const void* data = flat.const_data_ptr();
    operation_.keep(std::move(flat));
    return data;
}

void* Memory::output_blocks(const std::vector<at::Tensor>& tensors, int64_t blocks) {
    if (tensors.size() == 1) return output(tensors.front());
    const int64_t stride = total(tensors) / blocks;
    at::Tensor flat = scratch(tensors.front(), stride * blocks);
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
        const bool plain_one = is_plain(tensor);
        const at::Tensor target = plain_one ? tensor : scratch(tensor, tensor.numel());
        const int64_t count = tensor.numel() / blocks;
        for (int64_t i = 0; i < blocks; ++i)
            operation_.copy_afterwards({target, i * count, count},
                                       {flat, i * stride + begin, count});
        if (!plain_one) operation_.copy_afterwards(Slice(tensor), Slice(target));
        begin += count;
    }
    void* data = flat.data_ptr();
    operation_.keep(std::move(flat));
    return data;
}

// A copy of their elements, one tensor after the other.
at::Tensor Memory::packed(const std::vector<at::Tensor>& tensors) {
    const at::AutoDispatchBelowADInplaceOrView raw;
    c10::OptionalStreamGuard on;
    if (operation_.stream()) on.reset_stream(*operation_.stream());
    at::Tensor flat = scratch(tensors.front(), total(tensors));
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
        copy_slice(Slice(flat, begin, tensor.numel()), Slice(tensor));
        begin += tensor.numel();
        // The device may not have copied it yet.
        if (operation_.stream()) operation_.keep(tensor);
    }
    return flat;
}

// Memory that is copied to the tensors afterwards.
at::Tensor Memory::spread(const std::vector<at::Tensor>& tensors) {
    const at::AutoDispatchBelowADInplaceOrView raw;
    c10::OptionalStreamGuard on;
    if (operation_.stream()) on.reset_stream(*operation_.stream());
    at::Tensor flat = scratch(tensors.front(), total(tensors));
    int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
        operation_.copy_afterwards(Slice(tensor), Slice(flat, begin, tensor.numel()));
        begin += tensor.numel();
    }
    return flat;
}

void check_tensor(const at::Tensor& tensor, const char* operation, bool written) {
    TORCH_CHECK_VALUE(tensor.defined(), "tutti ", operation,
                      ": a tensor is undefined. What to do: pass tensors that have values");
    TORCH_CHECK_VALUE(tensor.is_cpu() || tensor.is_cuda(), "tutti ", operation, ": a tensor is on ",
                      tensor.device(),
                      ". What to do: pass tensors in host memory or on a CUDA device");
    TORCH_CHECK_VALUE(
        tensor.is_cpu() || c10::impl::hasDeviceGuardImpl(c10::kCUDA), "tutti ", operation,
        ": a tensor is on ", tensor.device(),
        ", and this torch was built without CUDA. What to do: install torch with CUDA, or "
        "pass tensors in host memory");
    TORCH_CHECK_VALUE(
        tensor.layout() == at::kStrided, "tutti ", operation, ": tensors of layout ",
        tensor.layout(),
        " are not supported. What to do: pass a dense tensor (all_reduce also takes sparse "
        "COO)");
    TORCH_CHECK_VALUE(
        !written || at::has_internal_overlap(tensor.unsafeGetTensorImpl()) != at::MemOverlap::Yes,
        "tutti ", operation,
        ": elements of an output share memory (it was expanded). What to do: pass its clone()");
}

void check_tensors(const std::vector<at::Tensor>& tensors, const char* operation, bool written) {
    for (const at::Tensor& tensor : tensors) {
        check_tensor(tensor, operation, written);
        TORCH_CHECK_VALUE(
            tensor.scalar_type() == tensors.front().scalar_type(), "tutti ", operation,
            ": the tensors of one call have different types: ", tensors.front().scalar_type(),
            " and ", tensor.scalar_type(), ". What to do: pass tensors of one dtype");
    }
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation) {
    TORCH_CHECK_VALUE(tensors.size() == 1, "tutti ", operation, ": expected one tensor, got ",
                      tensors.size(), ". What to do: pass a list of one tensor");
    return tensors.front();
}

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, std::size_t parts) {
    std::vector<std::size_t> counts;
    counts.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors)
        counts.push_back(static_cast<std::size_t>(tensor.numel()) * parts);
    return counts;
}

bool all_equal(const std::vector<std::size_t>& counts) {
    return std::all_of(counts.begin(), counts.end(),
                       [&](std::size_t count) { return count == counts.front(); });
}

std::size_t sum_of(const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace tutti_torch
