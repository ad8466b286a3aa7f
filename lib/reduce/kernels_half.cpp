// float16 and bfloat16: sum, prod, avg in fp32, and the conversions.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_half.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// bfloat16 ⊕ bfloat16 to bfloat16: two numbers stay in their 32-bit lane and are taken apart by
// shifts and masks, instead of being spread over two vectors and packed again.
template <class Operator, bool kDivide>
struct BfloatPairs {
    using A = uint16_t;
    using B = uint16_t;
    using Out = uint16_t;
    using DOut = hn::ScalableTag<uint16_t>;
    static constexpr bool unary = false;
    static constexpr bool hot = false;

    explicit BfloatPairs(const ReduceArgs& args) : divisor_(static_cast<float>(args.divisor)) {}

    HWY_INLINE hn::Vec<DOut> operator()(const uint16_t* pa, const uint16_t* pb) const {
        const DOut d16;
        const hn::Repartition<uint32_t, DOut> du;
        const hn::Repartition<float, DOut> d;
        const auto upper = hn::Set(du, 0xffff0000u);
        const auto a = hn::BitCast(du, hn::LoadU(d16, pa));
        const auto b = hn::BitCast(du, hn::LoadU(d16, pb));
        const auto low = combine(d, hn::ShiftLeft<16>(a), hn::ShiftLeft<16>(b));
        const auto high = combine(d, hn::And(a, upper), hn::And(b, upper));
        return hn::BitCast(d16, hn::Or(hn::ShiftRight<16>(low), hn::And(high, upper)));
    }

    template <class D, class V>
    HWY_INLINE V combine(D d, V a, V b) const {
        auto value = Operator::apply(hn::BitCast(d, a), hn::BitCast(d, b));
        if constexpr (kDivide) value = hn::Div(value, hn::Set(d, divisor_));
        return Bfloat16Format::round(d, value);
    }

    float divisor_;
};
#endif

// Conversions are part of the loop where they are an instruction or a few.
template <class F>
inline constexpr bool emulated = std::is_same_v<F, Encoded<uint16_t, Format<5, 10, true>>>;

template <class Operator, class F, int kForms>
struct Half {
    static ReduceFn find(bool stream) {
#if HWY_TARGET != HWY_SCALAR
        if constexpr (std::is_same_v<F, Bfloat16> && (kForms & 7) == 0) {
            return pick<BfloatPairs<Operator, (kForms & 8) != 0>>(stream);
        }
#endif
        if constexpr (emulated<F>) {
            return Blockwise<Operator, F, kForms>::find(stream);
        } else {
            return Fused<Operator, F, kForms>::find(stream);
        }
    }
};

ReduceFn half_table(Dtype dtype, Op op, SmallForms forms, bool stream) {
    return dtype == Dtype::float16 ? small_reduce<Half, Float16>(op, forms, stream)
                                   : small_reduce<Half, Bfloat16>(op, forms, stream);
}

ReduceFn half_convert_table(Dtype dtype, SmallForms forms, bool stream) {
    return dtype == Dtype::float16 ? small_convert<Float16>(forms, stream)
                                   : small_convert<Bfloat16>(forms, stream);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(half_table);
HWY_EXPORT(half_convert_table);

ReduceFn find_half(Dtype dtype, Op op, SmallForms forms, bool stream) {
    return HWY_DYNAMIC_DISPATCH(half_table)(dtype, op, forms, stream);
}

ReduceFn find_half_convert(Dtype dtype, SmallForms forms, bool stream) {
    return HWY_DYNAMIC_DISPATCH(half_convert_table)(dtype, forms, stream);
}

}  // namespace tutti::kernels
#endif
