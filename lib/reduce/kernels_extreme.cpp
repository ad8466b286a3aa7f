// max and min of all floats, by comparing their bits as integers: exact for the small formats, with
// +0 above -0, and independent of the processor's flush-to-zero modes. A NaN is the result
// unchanged; of two, a's.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_extreme.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/kernels.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

// kLastNumber: the largest magnitude that is not NaN (infinity, if the format has it).
template <class T, T kLastNumber, bool kMax>
struct Extreme {
    using A = T;
    using B = T;
    using Out = T;
    using DOut = hn::ScalableTag<T>;
    using V = hn::Vec<DOut>;
    static constexpr bool unary = false;
    static constexpr bool hot = false;
    static constexpr bool integers = true;

    explicit Extreme(const ReduceArgs&) {}

    HWY_INLINE V operator()(const T* pa, const T* pb) const {
        const DOut d;
        const auto magnitude = hn::Set(d, static_cast<T>(hwy::LimitsMax<T>()));
        const auto last_number = hn::Set(d, kLastNumber);
        const V a = hn::LoadU(d, pa);
        const V b = hn::LoadU(d, pb);
        // Two's complement order: inverts the magnitude of negative numbers.
        const V order_a = hn::Xor(a, hn::And(hn::BroadcastSignBit(a), magnitude));
        const V order_b = hn::Xor(b, hn::And(hn::BroadcastSignBit(b), magnitude));
        const auto better = kMax ? hn::Gt(order_b, order_a) : hn::Lt(order_b, order_a);
        const auto a_nan = hn::Gt(hn::And(a, magnitude), last_number);
        const auto b_nan = hn::Gt(hn::And(b, magnitude), last_number);
        return hn::IfThenElse(hn::AndNot(a_nan, hn::Or(better, b_nan)), b, a);
    }
};

template <class T, T kLastNumber>
ReduceFn extreme_kernel(Op op, bool stream) {
    return op == Op::max ? pick<Extreme<T, kLastNumber, true>>(stream)
                         : pick<Extreme<T, kLastNumber, false>>(stream);
}

ReduceFn extreme_table(Dtype dtype, Op op, bool stream) {
    switch (dtype) {
        case Dtype::float16:
            return extreme_kernel<int16_t, 0x7c00>(op, stream);
        case Dtype::bfloat16:
            return extreme_kernel<int16_t, 0x7f80>(op, stream);
        case Dtype::float64:
            return extreme_kernel<int64_t, 0x7ff0000000000000>(op, stream);
        case Dtype::float8_e4m3:
            return extreme_kernel<int8_t, 0x7e>(op, stream);
        case Dtype::float8_e5m2:
            return extreme_kernel<int8_t, 0x7c>(op, stream);
        default:
            return extreme_kernel<int32_t, 0x7f800000>(op, stream);
    }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(extreme_table);

ReduceFn find_float_extreme(Dtype dtype, Op op, bool stream) {
    return HWY_DYNAMIC_DISPATCH(extreme_table)(dtype, op, stream);
}

}  // namespace tutti::kernels
#endif
