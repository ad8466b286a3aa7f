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
    static constexpr bool hot = !kDivide;

    explicit BfloatPairs(const ReduceArgs& args) : divisor_(static_cast<float>(args.divisor)) {}

    HWY_INLINE hn::Vec<DOut> operator()(const uint16_t* pa, const uint16_t* pb) const {
        const Lanes a = take_apart(pa);
        const Lanes b = take_apart(pb);
        const Lanes sum = {divided(Operator::plain(a.low, b.low)),
                           divided(Operator::plain(a.high, b.high))};
        // What keeps NaNs in order would be half of the work, and they are rare. Their sum is NaN
        // if either is (and of infinities, which is harmless).
        const D d;
        if (HWY_UNLIKELY(!hn::AllFalse(d, hn::IsNaN(hn::Add(sum.low, sum.high))))) {
            return carefully(pa, pb);
        }
        return rounded(sum);
    }

private:
    using D = hn::Repartition<float, DOut>;
    using Bits = hn::Repartition<uint32_t, DOut>;
    struct Lanes {
        hn::Vec<D> low, high;
    };

    static HWY_INLINE Lanes take_apart(const uint16_t* p) {
        const Bits du;
        const D d;
        const auto bits = hn::BitCast(du, hn::LoadU(DOut(), p));
        return {hn::BitCast(d, hn::ShiftLeft<16>(bits)),
                hn::BitCast(d, hn::And(bits, hn::Set(du, 0xffff0000u)))};
    }

    static HWY_INLINE hn::Vec<DOut> put_together(hn::Vec<Bits> low, hn::Vec<Bits> high) {
        const auto upper = hn::And(high, hn::Set(Bits(), 0xffff0000u));
        return hn::BitCast(DOut(), hn::Or(hn::ShiftRight<16>(low), upper));
    }

    // Both at a time: what is kept, and what decides whether one is added to that. The average is
    // of 17 bits inside, whose highest is the carry of the lower half + 0x7fff + (odd).
    static HWY_INLINE hn::Vec<DOut> rounded(const Lanes& v) {
        const DOut d16;
        const Bits du;
        const auto low = hn::BitCast(du, v.low);
        const auto high = hn::BitCast(du, v.high);
        const auto kept =
            hn::OddEven(hn::BitCast(d16, high), hn::BitCast(d16, hn::ShiftRight<16>(low)));
        const auto lost =
            hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(high)), hn::BitCast(d16, low));
        const auto under_half = hn::OrAnd(hn::Set(d16, 0x7ffe), kept, hn::Set(d16, 1));
        return hn::Add(kept, hn::ShiftRight<15>(hn::AverageRound(lost, under_half)));
    }

    HWY_INLINE hn::Vec<D> divided(hn::Vec<D> v) const {
        if constexpr (kDivide) v = hn::Div(v, hn::Set(D(), divisor_));
        return v;
    }

    HWY_NOINLINE hn::Vec<DOut> carefully(const uint16_t* pa, const uint16_t* pb) const {
        const D d;
        const Lanes a = take_apart(pa);
        const Lanes b = take_apart(pb);
        const auto low = divided(Operator::apply(a.low, b.low));
        const auto high = divided(Operator::apply(a.high, b.high));
        return put_together(Bfloat16Format::round(d, low), Bfloat16Format::round(d, high));
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
