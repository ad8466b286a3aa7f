#include "plan/reduction.h"

#include <algorithm>

#include "base/hash.h"
#include "record/recorder.h"

namespace tutti {
namespace {

bool is_prefix(Collective collective) {
    return collective == Collective::scan || collective == Collective::exscan;
}

// item: elements that the program's operator combines as one.
Result<> check_divisible(const Call& call, uint32_t item) {
    if (item == 1) return {};
    const auto refuse = [&](std::size_t n) {
        return fail(Code::invalid,
                    "the operator works on items of {} elements, and {} is not a multiple of {}",
                    item, n, item)
            .advice("give counts and displacements that are multiples of {}", item);
    };
    if (call.count % item != 0) return refuse(call.count);
    for (const BlockList* list : {&call.input, &call.output})
        for (const auto& lengths : {list->counts, list->displacements})
            for (const std::size_t n : lengths)
                if (n % item != 0) return refuse(n);
    return {};
}

// The operator's scalar in the accumulator's form. A scalar of the data's dtype is converted. For
// 16- and 8-bit floats, whose accumulator is float32, it may be a float32 already.
Result<Factor> factor_of(const UserOperator& op, Dtype dtype) {
    Factor factor{};
    const Reducer sum = *Reducer::make(dtype, Op::sum);
    const bool wide = sum.bytes(Width::partial) != sum.bytes(Width::raw);
    if (op.scalar_dtype == dtype) {
        sum.move(Width::raw, Width::partial,
                 false)({.dst = factor.data(), .a = op.scalar.data(), .count = 1});
        return factor;
    }
    if (wide && op.scalar_dtype == Dtype::float32) return op.scalar;
    return fail(Code::invalid, "the pre-multiplied sum's scalar is {}, but the data is {}",
                dtype_name(op.scalar_dtype), dtype_name(dtype))
        .advice(
            "make the scalar with the dtype of the data, or with float32 for data that are floats "
            "of 16 or 8 bits");
}

Result<Reduction> of_premul(const Call& call, const UserOperator& op, uint64_t owner) {
    if (op.owner != owner)
        return fail(Code::invalid, "the pre-multiplied sum was made for another communicator")
            .advice("make one for this communicator (tutti_op_create_premul_sum)");
    Reduction r;
    TUTTI_ASSIGN(r.reducer, Reducer::make(call.dtype, Op::sum));
    TUTTI_ASSIGN(r.factor, factor_of(op, call.dtype));
    r.prepared = true;
    r.tag_bits = pack_user_op(true, op.number);
    r.hash = mix_hash(hash_basis, op.number);
    return r;
}

Result<Reduction> of_function(const Call& call, const UserOperator& op) {
    Reduction r;
    TUTTI_ASSIGN(r.reducer, Reducer::custom({op.combine, op.user, call.dtype, op.item}));
    TUTTI_TRY(check_divisible(call, op.item));
    r.ordered = !op.commutative;
    r.tag_bits = pack_user_op(false, op.number);
    r.hash = mix_hash(mix_hash(mix_hash(hash_basis, op.number), op.item), op.commutative);
    return r;
}

Result<Reduction> of_built_in(const Call& call) {
    Reduction r;
    TUTTI_ASSIGN(r.reducer, Reducer::make(call.dtype, call.op));
    if (call.op == Op::avg && is_prefix(call.collective))
        return fail(Code::invalid,
                    "avg is not defined for {}, in which each rank combines a different number of "
                    "contributions",
                    collective_name(call.collective))
            .advice("use sum, and divide by the rank's own number of contributions");
    r.tag_bits = pack_call(0, 0, static_cast<uint32_t>(call.op));
    // All ranks must divide an average by the same number: they compare this hash.
    if (call.op == Op::avg && call.inputs > 0)
        r.hash = mix_hash(hash_basis, static_cast<uint64_t>(call.inputs));
    return r;
}

}  // namespace

Result<Reduction> reduction_of(const Call& call, uint64_t owner) {
    Reduction r;
    if (!is_user_op(call.op)) {
        TUTTI_ASSIGN(r, of_built_in(call));
    } else {
        TUTTI_ASSIGN(const UserOperator op, find_operator(call.op));
        if (op.kind == UserOperator::Kind::premul_sum) {
            TUTTI_ASSIGN(r, of_premul(call, op, owner));
        } else {
            TUTTI_ASSIGN(r, of_function(call, op));
        }
    }
    if (call.inputs > 0) {  // allreduce_multi
        r.prepared = true;
        r.tag_bits |= multi_call;
    }
    return r;
}

int32_t divisor_of(const Call& call, Rank ranks) {
    if (call.op != Op::avg || !traits_of(call.collective).reduces) return 1;
    return ranks * std::max(1, call.inputs);
}

}  // namespace tutti
