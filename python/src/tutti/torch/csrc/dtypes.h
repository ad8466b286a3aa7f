// Which of tutti's types and operators carry torch's.
#pragma once

#include <tutti/tutti.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti_torch {

/// An element of a tensor is `parts` elements of dtype.
struct Element {
    tutti_dtype dtype;
    std::size_t parts;

    std::size_t count_in(const at::Tensor& tensor) const {
        return static_cast<std::size_t>(tensor.numel()) * parts;
    }
};

/// For calls that move data as it is. TypeError for what has no bytes of its own (quantised types).
Element element_of(at::ScalarType type, const char* operation);

/// For calls that compute.
struct Reduction {
    Element element;
    tutti_op op;
};

/// TypeError where the operator makes no sense for the type, naming both. Not for PREMUL_SUM's
/// handle: op is TUTTI_SUM there.
Reduction reduction_of(at::ScalarType type, c10d::ReduceOp::RedOpType op, const char* operation);

}  // namespace tutti_torch
