// all-to-all and barrier.
#include "backend.h"

namespace tutti_torch {
namespace {

using c10d::OpType;

// The number of elements for each rank: by the splits, in rows, or an equal part.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                      int size, std::size_t parts, const char* which) {
    if (splits.empty()) {
        TORCH_CHECK_VALUE((tensor.dim() == 0 ? tensor.numel() : tensor.size(0)) % size == 0,
                          "tutti all_to_all_single: the first dimension of the ", which,
                          " cannot be divided into ", size,
                          " equal parts. What to do: pass split sizes");
        return std::vector<std::size_t>(size,
                                        static_cast<std::size_t>(tensor.numel() / size) * parts);
    }
    TORCH_CHECK_VALUE(static_cast<int>(splits.size()) == size, "tutti all_to_all_single: expected ",
                      size, " split sizes of the ", which, ", got ", splits.size(),
                      ". What to do: pass one split size for each rank");
    int64_t sum = 0;
    for (const int64_t split : splits) {
        TORCH_CHECK_VALUE(split >= 0, "tutti all_to_all_single: a split size of the ", which,
                          " is ", split, ". What to do: pass split sizes of 0 or more");
        sum += split;
    }
    const int64_t have = tensor.dim() == 0 ? 1 : tensor.size(0);
    TORCH_CHECK_VALUE(sum == have, "tutti all_to_all_single: the split sizes of the ", which,
                      " add up to ", sum, ", its first dimension is ", have,
                      ". What to do: pass split sizes that add up to ", have);
    const std::size_t row = have == 0 ? 0 : static_cast<std::size_t>(tensor.numel() / have) * parts;
    std::vector<std::size_t> counts;
    for (const int64_t split : splits) counts.push_back(static_cast<std::size_t>(split) * row);
    return counts;
}

}  // namespace

void Backend::exchange(Call& call, const void* in, const std::vector<std::size_t>& in_counts,
                       void* out, const std::vector<std::size_t>& out_counts, tutti_dtype dtype) {
    // A rank with equal blocks does not know whether the other ranks' blocks are equal.
    start(call, unknown_bytes,
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_ialltoallv(comm, in, in_counts.data(), nullptr, out, out_counts.data(),
                                      nullptr, dtype, o, request);
          });
}

Backend::WorkPtr Backend::alltoall(Tensors& outputs, Tensors& inputs,
                                   const c10d::AllToAllOptions& opts) {
    constexpr Kind kind{OpType::ALLTOALL, "all_to_all", "tutti:all_to_all"};
    check_list(outputs.size(), kind.name, "outputs");
    check_list(inputs.size(), kind.name, "inputs");
    check_tensors(outputs, kind.name, true);
    check_tensors(inputs, kind.name, false);
    TORCH_CHECK_VALUE(inputs.front().scalar_type() == outputs.front().scalar_type(),
                      "tutti all_to_all: inputs of ", inputs.front().scalar_type(), ", outputs of ",
                      outputs.front().scalar_type(), ". What to do: pass tensors of one dtype");
    const Element element = element_of(inputs.front().scalar_type(), kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), inputs, outputs);
    const void* in = call.memory().inputs(inputs);
    void* out = call.memory().outputs(outputs);
    exchange(call, in, counts_of(inputs, element.parts), out, counts_of(outputs, element.parts),
             element.dtype);
    return started(call);
}

Backend::WorkPtr Backend::all_to_all_single(at::Tensor& output, at::Tensor& input,
                                            std::vector<int64_t>& output_splits,
                                            std::vector<int64_t>& input_splits,
                                            const c10d::AllToAllOptions& opts) {
    constexpr Kind kind{OpType::ALLTOALL_BASE, "all_to_all_single", "tutti:all_to_all"};
    check_tensor(output, kind.name, true);
    check_tensor(input, kind.name, false);
    TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(),
                      "tutti all_to_all_single: an input of ", input.scalar_type(),
                      ", an output of ", output.scalar_type(),
                      ". What to do: pass tensors of one dtype");
    const Element element = element_of(input.scalar_type(), kind.name);
    const auto in_counts = split_counts(input, input_splits, size_, element.parts, "input");
    const auto out_counts = split_counts(output, output_splits, size_, element.parts, "output");
    Call call = begin(kind, opts.timeout, is_async(opts), {input}, {output});
    const void* in = call.memory().input(input);
    void* out = call.memory().output(output);
    exchange(call, in, in_counts, out, out_counts, element.dtype);
    return started(call);
}

Backend::WorkPtr Backend::barrier(const c10d::BarrierOptions& opts) {
    constexpr Kind kind{OpType::BARRIER, "barrier", "tutti:barrier"};
    return barrier(kind, opts, nullptr);
}

Backend::WorkPtr Backend::barrier(const Kind& kind, const c10d::BarrierOptions& opts,
                                  const char* name) {
    Call call = begin(kind, opts.timeout, is_async(opts), {}, {});
    if (on_device_) call.work->come_after(ordered_operations());
    start(call, unknown_bytes,
          [name](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              tutti_call_opts named = *o;
              named.name = name;
              return tutti_ibarrier(comm, &named, request);
          });
    return started(call);
}

}  // namespace tutti_torch
