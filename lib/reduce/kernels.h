// The kernel tables, one per source file. Reducer decides once per bind which table to use. Each
// finds kernels for the instruction set that is selected at that moment, and never returns null.
#pragma once

#include "reduce/reduce.h"

namespace tutti::kernels {

/// float32 or float64 under sum, prod (avg is a sum that may divide at the end).
ReduceFn find_float(Dtype dtype, Op op, bool divide, bool stream);
/// One operand: a / divisor.
ReduceFn find_float_divide(Dtype dtype, bool stream);

/// The forms a kernel over 16- and 8-bit floats reads and writes: fp32 (wide) or the dtype.
struct SmallForms {
    bool a_wide = false;
    bool b_wide = false;
    bool out_wide = false;
    bool divide = false;  // only if the result is the dtype
    int index() const { return a_wide + 2 * b_wide + 4 * out_wide + 8 * divide; }
};

/// float16 or bfloat16 under sum or prod. Not for three wide forms: that is float32.
ReduceFn find_half(Dtype dtype, Op op, SmallForms forms, bool stream);
/// One operand: dtype to fp32 (out_wide), fp32 to dtype (a_wide), the latter with divide or
/// without.
ReduceFn find_half_convert(Dtype dtype, SmallForms forms, bool stream);
/// The same for float8_e4m3 and float8_e5m2.
ReduceFn find_fp8(Dtype dtype, Op op, SmallForms forms, bool stream);
ReduceFn find_fp8_convert(Dtype dtype, SmallForms forms, bool stream);

/// max or min of any float.
ReduceFn find_float_extreme(Dtype dtype, Op op, bool stream);

/// Integers under sum, prod, max, min, band, bor, bxor.
ReduceFn find_int(Dtype dtype, Op op, bool stream);
/// (a + b) / divisor, or a / divisor for one operand.
ReduceFn find_int_average(Dtype dtype, bool one_operand, bool stream);

/// Elements of 1 … max_mover_bytes bytes.
ReduceFn find_copy(std::size_t element_bytes, bool stream);

}  // namespace tutti::kernels
