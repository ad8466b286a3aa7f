// allreduce, reduce, reduce-scatter and their coalesced forms.
#include "backend.h"
#include "lists.h"

namespace tutti_torch {
namespace {

using c10d::OpType;

// Checks the types before any call starts, so that an error leaves none running.
template <typename Parts, typename TypeOf, typename Opts>
std::vector<Reduction> reductions_of(const Parts& parts, TypeOf type_of, const Opts& opts,
                                     const char* operation) {
    std::vector<Reduction> found;
    for (const auto& part : parts)
        found.push_back(reduction_of(type_of(part), opts.reduceOp.op_, operation));
    return found;
}

}  // namespace

Backend::WorkPtr Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    constexpr Kind kind{OpType::ALLREDUCE, "all_reduce", "tutti:all_reduce"};
    const at::Tensor& tensor = only(tensors, kind.name);
    if (tensor.layout() == at::kSparse) return allreduce_sparse(tensors, opts);
    check_tensor(tensor, kind.name, true);
    const Reduction reduction = reduction_of(tensor.scalar_type(), opts.reduceOp.op_, kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), tensors, tensors);
    const OwnedOp op = operator_for(opts.reduceOp, reduction, tensor.scalar_type(), call);
    void* data = call.memory().in_place(tensor);
    const std::size_t count = reduction.element.count_in(tensor);
    const tutti_dtype dtype = reduction.element.dtype;
    start(call, tensor.nbytes(),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_iallreduce(comm, data, data, count, dtype, op.op, o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::allreduce_coalesced(Tensors& tensors,
                                              const c10d::AllreduceCoalescedOptions& opts) {
    constexpr Kind kind{OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced",
                        "tutti:all_reduce_coalesced"};
    for (const at::Tensor& tensor : tensors) check_tensor(tensor, kind.name, true);
    const auto batches = batches_of(tensors, !group()->all_name_lists());
    const auto reductions = reductions_of(
        batches, [&](const auto& batch) { return tensors[batch.front()].scalar_type(); }, opts,
        kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), tensors, tensors);
    EachStarts each;
    const ListName name(tensors);
    for (std::size_t i = 0; i < batches.size(); ++i) {
        const Tensors batch = chosen(tensors, batches[i]);
        const Reduction& reduction = reductions[i];
        const at::ScalarType type = batch.front().scalar_type();
        const OwnedOp op = operator_for(opts.reduceOp, reduction, type, call);
        void* data = call.memory().in_place(batch);
        const std::size_t count = sum_of(counts_of(batch, reduction.element.parts));
        give_name(call, batch.size() > 1 ? &name : nullptr, tensors.size());
        each([&] {
            start(call, count * batch.front().element_size(),
                  [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
                      return tutti_iallreduce(comm, data, data, count, reduction.element.dtype,
                                              op.op, o, request);
                  });
        });
    }
    each.done();
    return started(call);
}

Backend::WorkPtr Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
    constexpr Kind kind{OpType::REDUCE, "reduce", "tutti:reduce"};
    const at::Tensor& tensor = only(tensors, kind.name);
    check_tensor(tensor, kind.name, true);
    check_root(opts.rootRank, kind.name);
    const Reduction reduction = reduction_of(tensor.scalar_type(), opts.reduceOp.op_, kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), tensors, tensors);
    const OwnedOp op = operator_for(opts.reduceOp, reduction, tensor.scalar_type(), call);
    const int root = static_cast<int>(opts.rootRank);
    // The tensors of other ranks do not change.
    const void* in = rank_ == root ? call.memory().in_place(tensor) : call.memory().input(tensor);
    void* out = rank_ == root ? const_cast<void*>(in) : nullptr;
    const std::size_t count = reduction.element.count_in(tensor);
    const tutti_dtype dtype = reduction.element.dtype;
    start(call, tensor.nbytes(),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_ireduce(comm, in, out, count, dtype, op.op, root, o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
    constexpr Kind kind{OpType::REDUCE_SCATTER, "reduce_scatter", "tutti:reduce_scatter"};
    const at::Tensor& output = only(outputs, kind.name);
    TORCH_CHECK_VALUE(inputs.size() == 1, "tutti reduce_scatter: expected one list of inputs, got ",
                      inputs.size(), ". What to do: pass one list with an input for each rank");
    const Tensors& blocks = inputs.front();
    check_list(blocks.size(), kind.name, "inputs");
    check_tensor(output, kind.name, true);
    check_tensors(blocks, kind.name, false);
    TORCH_CHECK_VALUE(output.scalar_type() == blocks.front().scalar_type() &&
                          output.numel() == blocks[rank_].numel(),
                      "tutti reduce_scatter: the output has ", output.numel(), " elements of ",
                      output.scalar_type(), ", this rank's input ", blocks[rank_].numel(), " of ",
                      blocks.front().scalar_type(),
                      ". What to do: pass an output that fits this rank's input");
    const Reduction reduction = reduction_of(output.scalar_type(), opts.reduceOp.op_, kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), blocks, outputs);
    const OwnedOp op = operator_for(opts.reduceOp, reduction, output.scalar_type(), call);
    const auto counts = counts_of(blocks, reduction.element.parts);
    const void* in = call.memory().inputs(blocks);
    void* out = call.memory().output(output);
    const tutti_dtype dtype = reduction.element.dtype;
    const std::size_t bytes = sum_of(counts) * output.element_size();
    start(call, bytes, [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
        return all_equal(counts)
                   ? tutti_ireduce_scatter(comm, in, out, counts.front(), dtype, op.op, o, request)
                   : tutti_ireduce_scatterv(comm, in, out, counts.data(), dtype, op.op, o, request);
    });
    return started(call);
}

void Backend::check_blocks(const at::Tensor& whole, const at::Tensor& block,
                           const char* operation) const {
    TORCH_CHECK_VALUE(
        whole.scalar_type() == block.scalar_type() && whole.numel() == block.numel() * size_,
        "tutti ", operation, ": a block has ", block.numel(), " elements of ", block.scalar_type(),
        " and the whole ", whole.numel(), " of ", whole.scalar_type(),
        ". What to do: pass a whole that holds a block for each of the ", size_, " ranks");
}

Backend::WorkPtr Backend::reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& opts) {
    constexpr Kind kind{OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor",
                        "tutti:_reduce_scatter_base"};
    check_tensor(output, kind.name, true);
    check_tensor(input, kind.name, false);
    check_blocks(input, output, kind.name);
    const Reduction reduction = reduction_of(output.scalar_type(), opts.reduceOp.op_, kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), {input}, {output});
    const OwnedOp op = operator_for(opts.reduceOp, reduction, output.scalar_type(), call);
    const void* in = call.memory().input(input);
    void* out = call.memory().output(output);
    const std::size_t count = reduction.element.count_in(output);
    const tutti_dtype dtype = reduction.element.dtype;
    start(call, input.nbytes(),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_ireduce_scatter(comm, in, out, count, dtype, op.op, o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
    constexpr Kind kind{OpType::COALESCED, "reduce_scatter_tensor_coalesced",
                        "tutti:reduce_scatter_tensor_coalesced"};
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "tutti ", kind.name, ": ", inputs.size(),
                      " inputs and ", outputs.size(),
                      " outputs. What to do: pass an output for each input");
    for (std::size_t i = 0; i < outputs.size(); ++i) {
        check_tensor(outputs[i], kind.name, true);
        check_tensor(inputs[i], kind.name, false);
        check_blocks(inputs[i], outputs[i], kind.name);
    }
    const auto reductions = reductions_of(
        outputs, [](const at::Tensor& t) { return t.scalar_type(); }, opts, kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), inputs, outputs);
    EachStarts each;
    const ListName name(inputs);
    for (const auto& batch : batches_of_blocks(inputs, call.group->all_name_lists())) {
        const Tensors wholes = chosen(inputs, batch), parts = chosen(outputs, batch);
        const Reduction& reduction = reductions[batch.front()];
        const at::ScalarType type = parts.front().scalar_type();
        const OwnedOp op = operator_for(opts.reduceOp, reduction, type, call);
        const void* in = call.memory().input_blocks(wholes, size_);
        void* out = call.memory().outputs(parts);
        const std::size_t count = sum_of(counts_of(parts, reduction.element.parts));
        give_name(call, batch.size() > 1 ? &name : nullptr, inputs.size());
        each([&] {
            start(call, sum_of(counts_of(wholes, wholes.front().element_size())),
                  [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
                      return tutti_ireduce_scatter(comm, in, out, count, reduction.element.dtype,
                                                   op.op, o, request);
                  });
        });
    }
    each.done();
    return started(call);
}

}  // namespace tutti_torch
