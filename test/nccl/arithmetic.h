// NCCL's numbers for types and operators, and what the stand-in computes from what the ranks gave.
#pragma once

#include <vector>

#include "nccl/shared_ranks.h"
#include "reduce/reduce.h"

namespace fake_nccl {

inline constexpr tutti::Dtype dtypes[] = {
    tutti::Dtype::int8,     tutti::Dtype::uint8,       tutti::Dtype::int32,
    tutti::Dtype::uint32,   tutti::Dtype::int64,       tutti::Dtype::uint64,
    tutti::Dtype::float16,  tutti::Dtype::float32,     tutti::Dtype::float64,
    tutti::Dtype::bfloat16, tutti::Dtype::float8_e4m3, tutti::Dtype::float8_e5m2};
inline constexpr tutti::Op ops[] = {tutti::Op::sum, tutti::Op::prod, tutti::Op::max, tutti::Op::min,
                                    tutti::Op::avg};
inline constexpr int built_in_ops = 5;

/// Rounds at every hop, as a ring does; the ranks' order differs by nobody.
inline void combine(const SharedRanks& ranks, int nccl_dtype, int nccl_op, std::size_t at,
                    std::size_t count, std::byte* out) {
    using tutti::Width;
    const tutti::Dtype dtype = dtypes[nccl_dtype];
    const bool premul = nccl_op >= built_in_ops;
    const auto reducer = *tutti::Reducer::make(dtype, premul ? tutti::Op::sum : ops[nccl_op]);
    const int n = ranks.size();
    const std::size_t offset = at * tutti::dtype_bytes(dtype);
    std::vector<std::byte> sum(count * reducer.bytes(Width::partial) + 8);
    reducer.move(Width::raw, n == 1 ? Width::final : Width::partial,
                 false)({.dst = n == 1 ? out : sum.data(),
                         .a = ranks.area(0) + offset,
                         .count = count,
                         .divisor = n});
    for (int r = 1; r < n; ++r) {
        const bool last = r == n - 1;
        reducer.reduce(Width::partial, Width::raw, last ? Width::final : Width::partial,
                       false)({.dst = last ? out : sum.data(),
                               .a = sum.data(),
                               .b = ranks.area(r) + offset,
                               .count = count,
                               .divisor = n});
    }
}

}  // namespace fake_nccl
