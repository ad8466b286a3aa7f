#include "reduce/reduce.h"

#include <cassert>
#include <iterator>
#include <string>

#include "reduce/kernels.h"

namespace tutti {
namespace {

struct DtypeInfo {
    std::string_view name;
    std::size_t bytes;
    bool is_float;
};

// In the order of Dtype.
constexpr DtypeInfo dtypes[] = {
    {"int8", 1, false},       {"uint8", 1, false},      {"int16", 2, false},  {"uint16", 2, false},
    {"int32", 4, false},      {"uint32", 4, false},     {"int64", 8, false},  {"uint64", 8, false},
    {"float16", 2, true},     {"bfloat16", 2, true},    {"float32", 4, true}, {"float64", 8, true},
    {"float8_e4m3", 1, true}, {"float8_e5m2", 1, true},
};
static_assert(std::size(dtypes) == dtype_count);

// In the order of Op.
constexpr std::string_view ops[] = {"sum", "max", "min", "prod", "avg", "band", "bor", "bxor"};
static_assert(std::size(ops) == op_count);

constexpr DtypeInfo unknown_dtype = {"unknown", 0, false};

const DtypeInfo& info(Dtype dtype) {
    const auto index = static_cast<std::size_t>(dtype);
    return index < std::size(dtypes) ? dtypes[index] : unknown_dtype;
}

bool is_known(Dtype dtype) {
    return info(dtype).bytes != 0;
}
bool is_known(Op op) {
    return static_cast<std::size_t>(op) < std::size(ops);
}
bool is_bitwise(Op op) {
    return op == Op::band || op == Op::bor || op == Op::bxor;
}
bool is_extreme(Op op) {
    return op == Op::max || op == Op::min;
}

// Whether the accumulator is fp32 for a narrower dtype.
bool is_widened(Dtype dtype, Op op) {
    return is_float(dtype) && dtype_bytes(dtype) < 4 && !is_extreme(op);
}

std::string dtype_list() {
    std::string text;
    for (int i = 0; i < dtype_count; ++i) {
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, dtypes[i].name);
    }
    return text;
}

std::string op_list() {
    std::string text;
    for (int i = 0; i < op_count; ++i) {
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", i, ops[i]);
    }
    return text;
}

ReduceFn find_small(Dtype dtype, Op op, kernels::SmallForms forms, bool stream) {
    // Three wide forms are plain float32.
    if (forms.a_wide && forms.b_wide && forms.out_wide) {
        return kernels::find_float(Dtype::float32, op, false, stream);
    }
    return dtype_bytes(dtype) == 1 ? kernels::find_fp8(dtype, op, forms, stream)
                                   : kernels::find_half(dtype, op, forms, stream);
}

ReduceFn find_small_convert(Dtype dtype, kernels::SmallForms forms, bool stream) {
    return dtype_bytes(dtype) == 1 ? kernels::find_fp8_convert(dtype, forms, stream)
                                   : kernels::find_half_convert(dtype, forms, stream);
}

void combine_custom(const ReduceArgs& args) {
    if (args.count == 0) return;
    const UserFunction& f = *args.user;
    f.combine(args.a, args.b, args.dst, args.count * f.item, static_cast<int32_t>(f.dtype), f.user);
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
    return info(dtype).name;
}
std::size_t dtype_bytes(Dtype dtype) {
    return info(dtype).bytes;
}
bool is_float(Dtype dtype) {
    return info(dtype).is_float;
}

std::string_view op_name(Op op) {
    return is_known(op) ? ops[static_cast<std::size_t>(op)] : "unknown";
}

Result<Reducer> Reducer::make(Dtype dtype, Op op) {
    if (!is_known(dtype)) {
        return fail(Code::invalid, "unknown dtype {}", static_cast<int32_t>(dtype))
            .advice("give one of {}", dtype_list());
    }
    if (!is_known(op)) {
        return fail(Code::invalid, "unknown operator {}", static_cast<int32_t>(op))
            .advice("give one of {}", op_list());
    }
    if (is_bitwise(op) && is_float(dtype)) {
        return fail(Code::invalid, "{} is not defined on {}: bitwise operators take integers only",
                    op_name(op), dtype_name(dtype))
            .advice(
                "pass the floats as an unsigned integer of the same size to combine their bits");
    }
    Reducer reducer;
    reducer.dtype_ = dtype;
    reducer.op_ = op;
    return reducer;
}

Reducer Reducer::mover(std::size_t element_bytes) {
    assert(element_bytes >= 1 && element_bytes <= max_mover_bytes);
    Reducer reducer;
    reducer.mover_bytes_ = element_bytes;
    return reducer;
}

Result<Reducer> Reducer::custom(const UserFunction& function) {
    if (!is_known(function.dtype)) {
        return fail(Code::invalid, "unknown dtype {}", static_cast<int32_t>(function.dtype))
            .advice("give one of {}", dtype_list());
    }
    const std::size_t bytes = function.item * dtype_bytes(function.dtype);
    if (bytes == 0 || bytes > max_mover_bytes) {
        return fail(
                   Code::invalid,
                   "the operator's items of {} elements of {} have {} bytes, which is out of range",
                   function.item, dtype_name(function.dtype), bytes)
            .advice("give items of 1 to {} bytes", max_mover_bytes);
    }
    Reducer reducer = mover(bytes);
    reducer.dtype_ = function.dtype;
    reducer.function_ = function;
    return reducer;
}

std::size_t Reducer::bytes(Width width) const {
    if (wide_raw_ && width == Width::raw) width = Width::partial;
    if (mover_bytes_ != 0) return mover_bytes_;
    if (width == Width::partial && is_widened(dtype_, op_)) return sizeof(float);
    return dtype_bytes(dtype_);
}

ReduceFn Reducer::reduce(Width wa, Width wb, Width wr, bool stream) const {
    if (function_.combine) return combine_custom;
    assert(mover_bytes_ == 0 && "a mover has no operator");
    if (wide_raw_) wa = wb = Width::partial;
    assert(wa != Width::final && wb != Width::final && wr != Width::raw);
    const bool divide = op_ == Op::avg && wr == Width::final;
    if (is_float(dtype_)) {
        if (is_extreme(op_)) return kernels::find_float_extreme(dtype_, op_, stream);
        if (!is_widened(dtype_, op_)) return kernels::find_float(dtype_, op_, divide, stream);
        return find_small(dtype_, op_,
                          {.a_wide = wa == Width::partial,
                           .b_wide = wb == Width::partial,
                           .out_wide = wr == Width::partial,
                           .divide = divide},
                          stream);
    }
    if (divide) return kernels::find_int_average(dtype_, false, stream);
    return kernels::find_int(dtype_, op_, stream);
}

ReduceFn Reducer::move(Width from, Width to, bool stream) const {
    if (mover_bytes_ != 0) return kernels::find_copy(mover_bytes_, stream);
    if (wide_raw_ && from == Width::raw) from = Width::partial;
    if (wide_raw_ && to == Width::raw) to = Width::partial;
    const bool divide = op_ == Op::avg && from == Width::partial && to == Width::final;
    const bool from_wide = from == Width::partial && is_widened(dtype_, op_);
    const bool to_wide = to == Width::partial && is_widened(dtype_, op_);
    if (from_wide != to_wide) {
        return find_small_convert(
            dtype_, {.a_wide = from_wide, .b_wide = false, .out_wide = to_wide, .divide = divide},
            stream);
    }
    if (divide) {
        return is_float(dtype_) ? kernels::find_float_divide(dtype_, stream)
                                : kernels::find_int_average(dtype_, true, stream);
    }
    return kernels::find_copy(bytes(from), stream);
}

}  // namespace tutti
