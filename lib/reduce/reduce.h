// Element types, operators, and the kernels that combine elements at memory speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace tutti {

// Values as in the C header (TUTTI_INT8 …); capi holds the two against each other.
enum class Dtype : int32_t {
    int8,
    uint8,
    int16,
    uint16,
    int32,
    uint32,
    int64,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    float8_e4m3,
    float8_e5m2,
};
inline constexpr int dtype_count = 14;

enum class Op : int32_t { sum, max, min, prod, avg, band, bor, bxor };
inline constexpr int op_count = 8;

std::string_view dtype_name(Dtype dtype);  // "float32"
std::string_view op_name(Op op);           // "sum"
std::size_t dtype_bytes(Dtype dtype);
bool is_float(Dtype dtype);

/// The representation of a value during a reduction. Mirrors schedule's Form: this folder does not
/// know schedules, and the engine maps one to the other.
enum class Width : uint8_t {
    raw,      // the dtype
    partial,  // the accumulator: fp32 for 16- and 8-bit floats under sum, prod and avg; else the
              // dtype
    final,    // the dtype again, rounded once; avg: divided by the number of contributions
};

/// A program's own operator: result[i] = first[i] ⊕ second[i], item by item. result may be first or
/// second. dtype is a Dtype's number.
struct UserFunction {
    using Combine = void (*)(const void* first, const void* second, void* result, std::size_t count,
                             int32_t dtype, void* user);
    Combine combine = nullptr;
    void* user = nullptr;
    Dtype dtype = Dtype::uint8;
    uint32_t item = 1;  // elements of the dtype that form one item and are never separated
};

/// dst[i] = a[i] ⊕ b[i]. b null: dst[i] = a[i], converted between the forms of the kernel.
/// Aliasing: dst may be a or b if the element sizes are equal; otherwise it overlaps nothing. No
/// alignment is needed. count may be 0.
struct ReduceArgs {
    void* dst = nullptr;
    const void* a = nullptr;
    const void* b = nullptr;
    std::size_t count = 0;
    int32_t divisor = 1;                 // avg: applied if the result is final
    const UserFunction* user = nullptr;  // Reducer::function() of the kernel's reducer
};
using ReduceFn = void (*)(const ReduceArgs&);

inline constexpr std::size_t max_mover_bytes = 64;

/// Chooses the kernels of one (dtype, op) at bind time.
///
/// Integers wrap; their avg divides the wrapped sum toward zero. max and min return a NaN unchanged
/// (of two, a's) and order +0 above -0. From two NaNs, sum and prod return a's payload, quiet. 16-
/// and 8-bit floats round to nearest even once, in the final result. Beyond the largest finite
/// value they become infinite; float8_e4m3 (the "fn" variant, which has no infinity) becomes NaN,
/// as in PyTorch and ml_dtypes. avg of floats divides in the accumulator, before that rounding.
class Reducer {
public:
    /// invalid for an op that the dtype does not support (bitwise on floats) and for values that
    /// are no dtype or op.
    static Result<Reducer> make(Dtype dtype, Op op);
    /// Moves bytes only (broadcast, barrier): all forms are the element, and reduce() must not be
    /// called. element_bytes: 1 … max_mover_bytes; for larger elements use a size that divides
    /// theirs, and a larger count.
    static Reducer mover(std::size_t element_bytes);

    /// A program's own operator: all forms are the item, of at most max_mover_bytes bytes.
    static Result<Reducer> custom(const UserFunction& function);

    /// The same reduction for inputs in the accumulator's form: raw equals partial.
    Reducer widened() const {
        Reducer wide = *this;
        wide.wide_raw_ = true;
        return wide;
    }

    /// Elements of the dtype in one element of this reducer: more than one only for custom().
    uint32_t item() const { return function_.item; }
    /// The caller passes it to kernels as ReduceArgs::user.
    const UserFunction& function() const { return function_; }

    /// Bytes per element in that form.
    std::size_t bytes(Width width) const;
    /// The size of a partial result in inputs: 2 for sums of 16-bit floats.
    uint32_t widening() const {
        return static_cast<uint32_t>(bytes(Width::partial) / bytes(Width::raw));
    }

    /// The two-operand kernel for a of form wa, b of form wb (each raw or partial), and a result of
    /// form wr (partial or final). Never null. stream: dst by non-temporal stores, for results that
    /// this core does not read again soon.
    ReduceFn reduce(Width wa, Width wb, Width wr, bool stream) const;

    /// The one-operand kernel (b null): a copy if the forms are equal in memory, else a conversion;
    /// partial to final divides for avg. raw to final is a copy (one contribution), and so is final
    /// to raw. Never null.
    ReduceFn move(Width from, Width to, bool stream) const;

private:
    Reducer() = default;
    Dtype dtype_ = Dtype::uint8;
    Op op_ = Op::sum;
    std::size_t mover_bytes_ = 0;  // not 0: a mover, or custom
    bool wide_raw_ = false;
    UserFunction function_;
};

/// The instruction set of the kernels: "AVX3", "AVX2", "SSE4", …
std::string_view simd_target();

}  // namespace tutti
