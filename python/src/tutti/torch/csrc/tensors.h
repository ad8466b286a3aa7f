// Copies tensors to contiguous memory, and back.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include "operation.h"

namespace tutti_torch {

/// Strided tensors are packed into a copy, and copied back when the operation is over; lists become
/// one block after the other, without a copy if they lie like that already. The operation keeps all
/// of the memory alive.
class Memory {
public:
    explicit Memory(Operation& operation) : operation_(operation) {}

    const void* input(const at::Tensor& tensor);
    void* output(const at::Tensor& tensor);
    void* in_place(const at::Tensor& tensor);
    const void* inputs(const std::vector<at::Tensor>& tensors);
    void* outputs(const std::vector<at::Tensor>& tensors);
    void* in_place(const std::vector<at::Tensor>& tensors);
    /// For tensors on the host that have `blocks` blocks each: the memory holds the first block of
    /// every tensor, then the second of every tensor, and so on. A single tensor is not copied.
    const void* input_blocks(const std::vector<at::Tensor>& tensors, int64_t blocks);
    void* output_blocks(const std::vector<at::Tensor>& tensors, int64_t blocks);

private:
    at::Tensor packed(const std::vector<at::Tensor>& tensors);
    at::Tensor spread(const std::vector<at::Tensor>& tensors);

    Operation& operation_;
};

/// ValueError unless it is a dense tensor of the host or a CUDA device. written: ValueError also if
/// its elements share memory.
void check_tensor(const at::Tensor& tensor, const char* operation, bool written);
/// The same for a list, whose tensors must have one type (that of first, if given).
void check_tensors(const std::vector<at::Tensor>& tensors, const char* operation, bool written);
/// Returns the only tensor; torch's forms with several devices per process are not for CPUs.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation);

std::vector<std::size_t> counts_of(const std::vector<at::Tensor>& tensors, std::size_t parts);
bool all_equal(const std::vector<std::size_t>& counts);
std::size_t sum_of(const std::vector<std::size_t>& counts);

}  // namespace tutti_torch
