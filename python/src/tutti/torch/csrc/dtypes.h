// Maps torch's types and operators to tutti's.
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

/// For calls that only move data. TypeError for quantised types.
Element element_of(at::ScalarType type, const char* operation);

/// For calls that compute.
struct Reduction {
    Element element;
    tutti_op op;
};

/// TypeError, naming both, if the type does not have the operator. For PREMUL_SUM it returns
/// TUTTI_SUM, not the handle.
Reduction reduction_of(at::ScalarType type, c10d::ReduceOp::RedOpType op, const char* operation);

}  // namespace tutti_torch
