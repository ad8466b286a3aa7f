#include "flat.h"

#include <cstring>

namespace tutti_torch {
namespace {

bool on_host(const Slice& slice) {
    return slice.tensor.is_cpu() && is_plain(slice.tensor);
}

// Returns the slice in the shape of the other side, if that is not plain.
at::Tensor view_of(const Slice& slice, const Slice& other) {
    if (!is_plain(slice.tensor)) return slice.tensor;
    const at::Tensor part = slice.tensor.view({-1}).narrow(0, slice.begin, slice.count);
    return is_plain(other.tensor) ? part : part.view(other.tensor.sizes());
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

void copy_slice(const Slice& to, const Slice& from) {
    if (to.count == 0) return;
    if (!on_host(to) || !on_host(from) || to.tensor.scalar_type() != from.tensor.scalar_type()) {
        view_of(to, from).copy_(view_of(from, to));
        return;
    }
    const auto element = static_cast<int64_t>(to.tensor.element_size());
    std::memcpy(static_cast<char*>(to.tensor.data_ptr()) + to.begin * element,
                static_cast<const char*>(from.tensor.const_data_ptr()) + from.begin * element,
                static_cast<std::size_t>(to.count * element));
}

}  // namespace tutti_torch
