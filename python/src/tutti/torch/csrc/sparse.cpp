// Sums of sparse COO tensors: every rank gets all entries and merges them in the order of the
// ranks. No memory is as large as the dense tensor.
#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>

#include "backend.h"

namespace tutti_torch {
namespace {

using c10d::OpType;
constexpr const char* sparse_name = "all_reduce (sparse)";
constexpr int64_t most_dimensions = 62;

// Each rank's entries are sorted, without a position twice, so adding is merging two lists, and
// positions that several ranks have are summed in the order of the ranks. Small floats round once.
at::Tensor merged(const std::vector<at::Tensor>& indices, const std::vector<at::Tensor>& values,
                  const at::Tensor& like) {
    const at::ScalarType type = like.scalar_type();
    const bool small = at::isFloatingType(type) && c10::elementSize(type) < 4;
    const at::ScalarType accumulator = small ? at::kFloat : type;
    at::Tensor sum;
    for (std::size_t rank = 0; rank < indices.size(); ++rank) {
        // Checks that all positions are inside, because they come from other ranks.
        const at::Tensor part =
            at::sparse_coo_tensor(indices[rank], values[rank].to(accumulator), like.sizes(),
                                  like.options().dtype(accumulator))
                ._coalesced_(true);
        sum = rank == 0 ? part : sum.add(part);
    }
    return (small ? sum.to(type) : sum).coalesce();
}

}  // namespace

// Gathers every rank's shape: [sparse dimensions, dimensions, entries, sizes …].
at::Tensor Backend::shapes_of_all(const at::Tensor& tensor, const c10d::AllgatherOptions& opts) {
    at::Tensor own = at::zeros({most_dimensions + 3}, at::kLong);
    int64_t* words = own.data_ptr<int64_t>();
    words[0] = tensor.sparse_dim();
    words[1] = tensor.dim();
    words[2] = tensor._nnz();
    for (int64_t i = 0; i < tensor.dim(); ++i) words[3 + i] = tensor.size(i);
    at::Tensor all = at::empty({size_, most_dimensions + 3}, at::kLong);
    all_gather_single(all, own, opts)->wait();
    for (int rank = 0; rank < size_; ++rank) {
        const int64_t* other = all.const_data_ptr<int64_t>() + rank * (most_dimensions + 3);
        bool same = other[0] == words[0] && other[1] == words[1] && other[2] >= 0;
        for (int64_t i = 0; same && i < tensor.dim(); ++i) same = other[3 + i] == words[3 + i];
        TORCH_CHECK_VALUE(same, "tutti ", sparse_name, ": the tensor of rank ", rank,
                          " has another shape", " than that of rank ", rank_, ", which is ",
                          tensor.sizes(), ". What to do: pass tensors of one shape on every rank");
    }
    return all;
}

Backend::WorkPtr Backend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
    constexpr Kind kind{OpType::_ALLREDUCE_SPARSE, sparse_name, "tutti:sparse_all_reduce"};
    at::Tensor& tensor = tensors.at(0);
    only(tensors, sparse_name);
    TORCH_CHECK_VALUE(tensor.device().is_cpu() && tensor.layout() == at::kSparse, "tutti ",
                      sparse_name,
                      ": expected a sparse COO tensor in host memory, got one of layout ",
                      tensor.layout(), " on ", tensor.device(),
                      ". What to do: convert the tensor, for example with x.cpu().to_sparse_coo()");
    TORCH_CHECK_VALUE(opts.reduceOp.op_ == c10d::ReduceOp::SUM, "tutti ", sparse_name,
                      ": only ReduceOp.SUM is defined for sparse tensors. What to do: use it, or a "
                      "dense tensor");
    TORCH_CHECK_VALUE(tensor.dim() <= most_dimensions, "tutti ", sparse_name, ": the tensor has ",
                      tensor.dim(), " dimensions. What to do: pass one of at most ",
                      most_dimensions);
    c10d::AllgatherOptions gathering;
    gathering.timeout = opts.timeout;
    const at::Tensor own = tensor.detach().coalesce();
    c10d::BarrierOptions beginning;
    beginning.timeout = opts.timeout;
    barrier(kind, beginning, "sparse sum")->wait();
    const at::Tensor shapes = shapes_of_all(own, gathering);
    std::vector<Tensors> indices(1), values(1);
    for (int rank = 0; rank < size_; ++rank) {
        const int64_t entries = shapes.const_data_ptr<int64_t>()[rank * (most_dimensions + 3) + 2];
        std::vector<int64_t> sizes = own._values().sizes().vec();
        sizes[0] = entries;
        indices[0].push_back(at::empty({own.sparse_dim(), entries}, at::kLong));
        values[0].push_back(at::empty(sizes, own._values().options()));
    }
    Tensors own_indices{own._indices().contiguous()}, own_values{own._values().contiguous()};
    const auto first = allgather(indices, own_indices, gathering);
    allgather(values, own_values, gathering)->wait();
    first->wait();
    const at::Tensor sum = merged(indices[0], values[0], own);
    {
        const at::AutoDispatchBelowADInplaceOrView raw;
        tensor.copy_(sum);
    }
    Call call = begin(kind, opts.timeout, is_async(opts), {}, {tensor});
    call.operation->finish_now();
    return started(call);
}

}  // namespace tutti_torch
