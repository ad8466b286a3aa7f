// Elements of tensors, one tensor after the other in one piece of memory.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace tutti_torch {

/// Whether a tensor's memory, from the first byte to the last, is its elements in order.
bool is_plain(const at::Tensor& tensor);

/// A tensor, or some elements of a plain one in the order of its memory.
struct Slice {
    explicit Slice(at::Tensor all) : tensor(std::move(all)), count(tensor.numel()) {}
    Slice(at::Tensor of, int64_t first, int64_t elements)
        : tensor(std::move(of)), begin(first), count(elements) {}

    at::Tensor tensor;
    int64_t begin = 0;
    int64_t count;
};

/// Copies the elements; both have the same number. On the host, plain memory of one type is copied
/// without torch's dispatch, which takes longer than the copy of a small tensor.
void copy_slice(const Slice& to, const Slice& from);

}  // namespace tutti_torch
