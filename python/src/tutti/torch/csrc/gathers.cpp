// broadcast, allgather, gather and scatter, which only move data.
#include "backend.h"

namespace tutti_torch {
namespace {

using c10d::OpType;

void check_own_block(const at::Tensor& own, const at::Tensor& block, const char* operation) {
    TORCH_CHECK_VALUE(own.scalar_type() == block.scalar_type() && own.numel() == block.numel(),
                      "tutti ", operation, ": this rank's tensor has ", own.numel(),
                      " elements of ", own.scalar_type(), ", its place in the list ", block.numel(),
                      " of ", block.scalar_type(),
                      ". What to do: pass a list whose entry for this rank fits its tensor");
}

}  // namespace

Backend::WorkPtr Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
    constexpr Kind kind{OpType::BROADCAST, "broadcast", "tutti:broadcast"};
    const at::Tensor& tensor = only(tensors, kind.name);
    const int root = static_cast<int>(opts.rootRank);
    check_tensor(tensor, kind.name, rank_ != root);
    check_root(opts.rootRank, kind.name);
    const Element element = element_of(tensor.scalar_type(), kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), tensors, tensors);
    void* data = rank_ == root ? const_cast<void*>(call.memory().input(tensor))
                               : call.memory().output(tensor);
    const std::size_t count = element.count_in(tensor);
    start(call, tensor.nbytes(),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_ibroadcast(comm, data, count, element.dtype, root, o, request);
          });
    return started(call);
}

// Gathers one block of each rank into a list.
void Backend::gather_into(Call& call, const Tensors& blocks, const at::Tensor& own) {
    const char* name = call.operation->name().c_str();
    const Element element = element_of(own.scalar_type(), name);
    const auto counts = counts_of(blocks, element.parts);
    const void* in = call.memory().input(own);
    void* out = call.memory().outputs(blocks);
    start(call, sum_of(counts) * own.element_size(),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return all_equal(counts) ? tutti_iallgather(comm, in, out, counts.front(),
                                                          element.dtype, o, request)
                                       : tutti_iallgatherv(comm, in, out, counts.data(), nullptr,
                                                           element.dtype, o, request);
          });
}

Backend::WorkPtr Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
    constexpr Kind kind{OpType::ALLGATHER, "all_gather", "tutti:all_gather"};
    const at::Tensor& own = only(inputs, kind.name);
    TORCH_CHECK_VALUE(outputs.size() == 1, "tutti all_gather: expected one list of outputs, got ",
                      outputs.size(), ". What to do: pass one list with an output for each rank");
    check_list(outputs.front().size(), kind.name, "outputs");
    check_tensor(own, kind.name, false);
    check_tensors(outputs.front(), kind.name, true);
    check_own_block(own, outputs.front()[rank_], kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), inputs, outputs.front());
    gather_into(call, outputs.front(), own);
    return started(call);
}

// outputs[rank][i] becomes inputs[i] of that rank.
Backend::WorkPtr Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
    constexpr Kind kind{OpType::ALLGATHER_COALESCED, "all_gather_coalesced",
                        "tutti:all_gather_coalesced"};
    check_list(outputs.size(), kind.name, "lists of outputs");
    Tensors results;
    for (const Tensors& list : outputs) {
        TORCH_CHECK_VALUE(list.size() == inputs.size(), "tutti ", kind.name, ": ", inputs.size(),
                          " inputs, and a list of ", list.size(),
                          " outputs. What to do: pass lists with an output for each input");
        results.insert(results.end(), list.begin(), list.end());
    }
    std::vector<Tensors> columns;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        Tensors column;
        for (const Tensors& list : outputs) column.push_back(list[i]);
        check_tensor(inputs[i], kind.name, false);
        check_tensors(column, kind.name, true);
        check_own_block(inputs[i], column[rank_], kind.name);
        (void)element_of(inputs[i].scalar_type(), kind.name);
        columns.push_back(std::move(column));
    }
    Call call = begin(kind, opts.timeout, is_async(opts), inputs, std::move(results));
    EachStarts each;
    for (std::size_t i = 0; i < inputs.size(); ++i)
        each([&] { gather_into(call, columns[i], inputs[i]); });
    each.done();
    return started(call);
}

Backend::WorkPtr Backend::all_gather_single(at::Tensor& output, at::Tensor& input,
                                            const c10d::AllgatherOptions& opts) {
    constexpr Kind kind{OpType::_ALLGATHER_BASE, "all_gather_into_tensor", "tutti:_allgather_base"};
    check_tensor(output, kind.name, true);
    check_tensor(input, kind.name, false);
    check_blocks(output, input, kind.name);
    const Element element = element_of(input.scalar_type(), kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), {input}, {output});
    const void* in = call.memory().input(input);
    void* out = call.memory().output(output);
    const std::size_t count = element.count_in(input);
    start(call, output.nbytes(),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_iallgather(comm, in, out, count, element.dtype, o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                                      const c10d::AllgatherOptions& opts) {
    constexpr Kind kind{OpType::COALESCED, "all_gather_into_tensor_coalesced",
                        "tutti:all_gather_into_tensor_coalesced"};
    TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "tutti ", kind.name, ": ", inputs.size(),
                      " inputs and ", outputs.size(),
                      " outputs. What to do: pass an output for each input");
    std::vector<Element> elements;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        check_tensor(outputs[i], kind.name, true);
        check_tensor(inputs[i], kind.name, false);
        check_blocks(outputs[i], inputs[i], kind.name);
        elements.push_back(element_of(inputs[i].scalar_type(), kind.name));
    }
    Call call = begin(kind, opts.timeout, is_async(opts), inputs, outputs);
    EachStarts each;
    const ListName name(outputs);
    for (const auto& batch : batches_of_blocks(outputs, call.group->all_name_lists())) {
        const Tensors parts = chosen(inputs, batch), wholes = chosen(outputs, batch);
        const Element& element = elements[batch.front()];
        const void* in = call.memory().inputs(parts);
        void* out = call.memory().output_blocks(wholes, size_);
        const std::size_t count = sum_of(counts_of(parts, element.parts));
        give_name(call, batch.size() > 1 ? &name : nullptr, outputs.size());
        each([&] {
            start(call, sum_of(counts_of(wholes, wholes.front().element_size())),
                  [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
                      return tutti_iallgather(comm, in, out, count, element.dtype, o, request);
                  });
        });
    }
    each.done();
    return started(call);
}

Backend::WorkPtr Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                 const c10d::GatherOptions& opts) {
    constexpr Kind kind{OpType::GATHER, "gather", "tutti:gather"};
    const at::Tensor& own = only(inputs, kind.name);
    check_tensor(own, kind.name, false);
    check_root(opts.rootRank, kind.name);
    const int root = static_cast<int>(opts.rootRank);
    Tensors blocks;
    if (rank_ == root) {
        TORCH_CHECK_VALUE(
            outputs.size() == 1, "tutti gather: the root got ", outputs.size(),
            " lists of outputs. What to do: pass one list with an output for each rank "
            "on the root");
        blocks = outputs.front();
        check_list(blocks.size(), kind.name, "outputs");
        check_tensors(blocks, kind.name, true);
        check_own_block(own, blocks[rank_], kind.name);
    } else {
        TORCH_CHECK_VALUE(outputs.empty(),
                          "tutti gather: a rank other than the root got outputs. "
                          "What to do: pass outputs on the root only");
    }
    const Element element = element_of(own.scalar_type(), kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), inputs, blocks);
    const auto counts = counts_of(blocks, element.parts);
    const void* in = call.memory().input(own);
    void* out = rank_ == root ? call.memory().outputs(blocks) : nullptr;
    // Only the root knows whether the blocks are equal, so all ranks make the general call.
    start(call, unknown_bytes,
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_igatherv(comm, in, element.count_in(own), out,
                                    counts.empty() ? nullptr : counts.data(), nullptr,
                                    element.dtype, root, o, request);
          });
    return started(call);
}

Backend::WorkPtr Backend::gather_single(at::Tensor& output, at::Tensor& input,
                                        const c10d::GatherOptions& opts) {
    constexpr Kind kind{OpType::GATHER, "gather_into_tensor", "tutti:gather_into_tensor"};
    check_tensor(input, kind.name, false);
    check_root(opts.rootRank, kind.name);
    const int root = static_cast<int>(opts.rootRank);
    const Element element = element_of(input.scalar_type(), kind.name);
    if (rank_ == root) {
        check_tensor(output, kind.name, true);
        check_blocks(output, input, kind.name);
    }
    Call call = begin(kind, opts.timeout, is_async(opts), {input},
                      rank_ == root ? Tensors{output} : Tensors{});
    const void* in = call.memory().input(input);
    void* out = rank_ == root ? call.memory().output(output) : nullptr;
    start(call, input.nbytes() * static_cast<std::size_t>(size_),
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_igather(comm, in, out, element.count_in(input), element.dtype, root, o,
                                   request);
          });
    return started(call);
}

Backend::WorkPtr Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ScatterOptions& opts) {
    constexpr Kind kind{OpType::SCATTER, "scatter", "tutti:scatter"};
    const at::Tensor& own = only(outputs, kind.name);
    check_tensor(own, kind.name, true);
    check_root(opts.rootRank, kind.name);
    const int root = static_cast<int>(opts.rootRank);
    Tensors blocks;
    if (rank_ == root) {
        TORCH_CHECK_VALUE(
            inputs.size() == 1, "tutti scatter: the root got ", inputs.size(),
            " lists of inputs. What to do: pass one list with an input for each rank on "
            "the root");
        blocks = inputs.front();
        check_list(blocks.size(), kind.name, "inputs");
        check_tensors(blocks, kind.name, false);
        check_own_block(own, blocks[rank_], kind.name);
    } else {
        TORCH_CHECK_VALUE(inputs.empty(),
                          "tutti scatter: a rank other than the root got inputs. "
                          "What to do: pass inputs on the root only");
    }
    const Element element = element_of(own.scalar_type(), kind.name);
    Call call = begin(kind, opts.timeout, is_async(opts), blocks, outputs);
    const auto counts = counts_of(blocks, element.parts);
    const void* in = rank_ == root ? call.memory().inputs(blocks) : nullptr;
    void* out = call.memory().output(own);
    start(call, unknown_bytes,
          [&](tutti_comm* comm, const tutti_call_opts* o, tutti_request** request) {
              return tutti_iscatterv(comm, in, counts.empty() ? nullptr : counts.data(), nullptr,
                                     out, element.count_in(own), element.dtype, root, o, request);
          });
    return started(call);
}

}  // namespace tutti_torch
