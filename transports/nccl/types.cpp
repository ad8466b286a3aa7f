#include "transports/nccl/types.h"

#include "transports/nccl/library.h"

namespace tutti::nccl {
namespace {

constexpr int as_bytes = 1;  // ncclUint8
constexpr int reduces_fp8_since = 90;

struct Type {
    Dtype dtype;
    int number;
    int since;  // the first version that can reduce it
};
constexpr Type types[] = {
    {Dtype::int8, 0, 0},
    {Dtype::uint8, 1, 0},
    {Dtype::int32, 2, 0},
    {Dtype::uint32, 3, 0},
    {Dtype::int64, 4, 0},
    {Dtype::uint64, 5, 0},
    {Dtype::float16, 6, 0},
    {Dtype::float32, 7, 0},
    {Dtype::float64, 8, 0},
    {Dtype::bfloat16, 9, 21000},
    {Dtype::float8_e4m3, 10, 22400},
    {Dtype::float8_e5m2, 11, 22400},
};

struct Operator {
    Op op;
    int number;
};
constexpr Operator operators[] = {
    {Op::sum, 0}, {Op::prod, 1}, {Op::max, 2}, {Op::min, 3}, {Op::avg, 4}};

}  // namespace

Result<Elements> elements_of(const IntrinsicShape& shape, const Ability& ability) {
    if (!traits_of(shape.collective).reduces)
        return Elements{as_bytes, dtype_bytes(shape.dtype), 0};
    const int version = ability.version;
    const Type* type = nullptr;
    for (const Type& t : types)
        if (t.dtype == shape.dtype && version >= t.since) type = &t;
    if (!type)
        return fail(Code::unsupported, "NCCL {} does not reduce {}", version_text(version),
                    dtype_name(shape.dtype))
            .advice("{}", other_algorithm);
    if (dtype_bytes(shape.dtype) == 1 && is_float(shape.dtype) &&
        ability.capability < reduces_fp8_since)
        return fail(Code::unsupported,
                    "NCCL reduces {} only on GPUs of compute capability 9.0 or newer, and a GPU of "
                    "this communicator has {}.{}",
                    dtype_name(shape.dtype), ability.capability / 10, ability.capability % 10)
            .advice("{}", other_algorithm);
    // NCCL rounds averages of integers differently: the host's kernels round towards zero.
    const bool averages_integers = shape.op == Op::avg && !is_float(shape.dtype);
    for (const Operator& o : operators)
        if (o.op == shape.op && !averages_integers) return Elements{type->number, 1, o.number};
    return fail(Code::unsupported, "NCCL has no {} of {}", op_name(shape.op),
                dtype_name(shape.dtype))
        .advice("{}", other_algorithm);
}

}  // namespace tutti::nccl
