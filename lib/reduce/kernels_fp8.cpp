// float8_e4m3 and float8_e5m2: sum, prod, avg in fp32, and the conversions.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_fp8.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

// fp8 ⊕ fp8 to fp8, the even and the odd bytes apart.
template <class Operator, class F>
struct Fp8Pairs {
    using A = uint8_t;
    using B = uint8_t;
    using Out = uint8_t;
    using D = hn::ScalableTag<float>;
    using D16 = hn::ScalableTag<uint16_t>;
    using DOut = hn::ScalableTag<uint8_t>;
    static constexpr bool unary = false;
    static constexpr bool hot = false;

    explicit Fp8Pairs(const ReduceArgs&) {}

    HWY_INLINE hn::Vec<DOut> operator()(const uint8_t* pa, const uint8_t* pb) const {
        const DOut d8;
        const D16 d16;
        const hn::RebindToSigned<DOut> di8;
        const auto a = hn::BitCast(di8, hn::LoadU(d8, pa));
        const auto b = F::second(di8, a, hn::BitCast(di8, hn::LoadU(d8, pb)));
        const auto a16 = hn::BitCast(d16, a);
        const auto b16 = hn::BitCast(d16, b);
        const auto even = combine(F::even_halves(d16, a16), F::even_halves(d16, b16));
        const auto odd = combine(F::odd_halves(d16, a16), F::odd_halves(d16, b16));
        const auto result = hn::BitCast(di8, F::pack(d16, even, odd));
        return hn::BitCast(d8, F::with_nans(di8, a, b, result));
    }

    HWY_INLINE hn::Vec<D16> combine(hn::Vec<D16> a, hn::Vec<D16> b) const {
        const Halves<D> dh;
        const auto upper = combine_half(hn::UpperHalf(dh, a), hn::UpperHalf(dh, b));
        return hn::Combine(D16(), upper, combine_half(hn::LowerHalf(dh, a), hn::LowerHalf(dh, b)));
    }

    HWY_INLINE hn::Vec<Halves<D>> combine_half(hn::Vec<Halves<D>> a, hn::Vec<Halves<D>> b) const {
        const D d;
        const auto x = half_to_float(d, a);
        const auto y = half_to_float(d, b);
        if constexpr (std::is_same_v<Operator, Product> && F::scale != 1) {
            return float_to_half(d, Operator::plain(hn::Mul(x, hn::Set(d, F::scale)), y));
        } else {
            return float_to_half(d, Operator::plain(x, y));
        }
    }
};

// Anything to fp8, two vectors of fp32 at a time: one of 16-bit lanes.
template <class Operator, class InA, class InB, class F, bool kDivide>
struct ToFp8 {
    using A = typename InA::Memory;
    using B = typename InB::Memory;
    using Out = uint8_t;
    using D = hn::ScalableTag<float>;
    using D16 = hn::ScalableTag<uint16_t>;
    using DOut = hn::Rebind<uint8_t, D16>;
    static constexpr bool unary = std::is_same_v<Operator, OnlyA>;
    static constexpr bool hot = false;

    explicit ToFp8(const ReduceArgs& args) : divisor_(static_cast<float>(args.divisor)) {}

    HWY_INLINE hn::Vec<DOut> operator()(const A* pa, const B* pb) const {
        const D16 d16;
        Pair values = load<InA>(pa);
        if constexpr (!unary) {
            const Pair b = load<InB>(pb);
            values = {Operator::apply(values.lower, b.lower),
                      Operator::apply(values.upper, b.upper)};
        }
        const auto half = hn::Combine(d16, narrow(values.upper), narrow(values.lower));
        const auto codes = hn::BitCast(hn::RebindToSigned<D16>(), F::codes(d16, half));
        return hn::DemoteTo(DOut(), codes);
    }

private:
    struct Pair {
        hn::Vec<D> lower, upper;
    };

    template <class In>
    static HWY_INLINE Pair load(const typename In::Memory* p) {
        const D d;
        if constexpr (std::is_same_v<In, Wide<float>>) {
            return {hn::LoadU(d, p), hn::LoadU(d, p + hn::Lanes(d))};
        } else {
            const Halves<D> dh;
            const auto halves = In::load_halves(D16(), p);
            return {In::value(d, hn::LowerHalf(dh, halves)),
                    In::value(d, hn::UpperHalf(dh, halves))};
        }
    }

    HWY_INLINE hn::Vec<Halves<D>> narrow(hn::Vec<D> v) const {
        const D d;
        if constexpr (kDivide) v = hn::Div(v, hn::Set(d, divisor_));
        return float_to_half(d, F::rounded(d, v));
    }

    float divisor_;
};

template <class Operator, class F, int kForms>
struct Fp8 {
    static constexpr bool divide = (kForms & 8) != 0;
    using InA = std::conditional_t<(kForms & 1) != 0, Wide<float>, F>;
    using InB = std::conditional_t<(kForms & 2) != 0, Wide<float>, F>;
    static ReduceFn find(bool stream) {
        if constexpr (kForms == 0) {
            return pick<Fp8Pairs<Operator, F>>(stream);
        } else if constexpr ((kForms & 4) != 0) {
            return pick<Combine<float, Operator, InA, InB, Wide<float>, false>>(stream);
        } else {
            return pick<ToFp8<Operator, InA, InB, F, divide>>(stream);
        }
    }
};

template <class F>
ReduceFn fp8_convert(SmallForms forms, bool stream) {
    if (forms.out_wide) return pick<ToWide<F>>(stream);
    return forms.divide ? pick<ToFp8<OnlyA, Wide<float>, F, F, true>>(stream)
                        : pick<ToFp8<OnlyA, Wide<float>, F, F, false>>(stream);
}

#else

template <class Operator, class F, int kForms>
using Fp8 = Blockwise<Operator, F, kForms>;

template <class F>
ReduceFn fp8_convert(SmallForms forms, bool stream) {
    return small_convert<F>(forms, stream);
}

#endif

ReduceFn fp8_table(Dtype dtype, Op op, SmallForms forms, bool stream) {
    return dtype == Dtype::float8_e4m3 ? small_reduce<Fp8, E4m3>(op, forms, stream)
                                       : small_reduce<Fp8, E5m2>(op, forms, stream);
}

ReduceFn fp8_convert_table(Dtype dtype, SmallForms forms, bool stream) {
    return dtype == Dtype::float8_e4m3 ? fp8_convert<E4m3>(forms, stream)
                                       : fp8_convert<E5m2>(forms, stream);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(fp8_table);
HWY_EXPORT(fp8_convert_table);

ReduceFn find_fp8(Dtype dtype, Op op, SmallForms forms, bool stream) {
    return HWY_DYNAMIC_DISPATCH(fp8_table)(dtype, op, forms, stream);
}

ReduceFn find_fp8_convert(Dtype dtype, SmallForms forms, bool stream) {
    return HWY_DYNAMIC_DISPATCH(fp8_convert_table)(dtype, forms, stream);
}

}  // namespace tutti::kernels
#endif
