// float8_e4m3 and float8_e5m2: sum, prod, avg in fp32, and the conversions.
#define HWY_WANT_AVX3_DL
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_fp8.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/fp8_bytes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR

// fp8 ⊕ fp8 to fp8, the four bytes of a 32-bit lane separately.
template <class Operator, class F, bool kDivide>
struct Fp8Pairs : QuickIfFinite<Fp8Pairs<Operator, F, kDivide>, uint8_t> {
    using Base = QuickIfFinite<Fp8Pairs<Operator, F, kDivide>, uint8_t>;
    using Coding = typename F::Coding;
    using DOut = hn::ScalableTag<uint8_t>;
    using V8 = hn::Vec<DOut>;
    static constexpr bool hot = std::is_same_v<Operator, Sum> && !kDivide;
    static constexpr int8_t magnitude = Coding::magnitude;
    static constexpr int8_t last_finite = Coding::last_finite;

    explicit Fp8Pairs(const ReduceArgs& args)
        : Base(kDivide && args.divisor > P::largest_divisor), division_(args.divisor) {}

    HWY_INLINE V8 quickly(V8 codes_a, V8 codes_b) const {
        const DOut d8;
        const D16 d16;
        const auto a = hn::BitCast(d16, codes_a), b = hn::BitCast(d16, codes_b);
        const Halves16 even = combined(hn::ShiftLeft<8>(a), hn::ShiftLeft<8>(b));
        const Halves16 odd = combined(a, b);
        const auto codes = even_and_odd(d16, hn::ShiftRight<lost>(even.rounded),
                                        hn::ShiftLeft<8 - lost>(odd.rounded));
        const auto numbers = hn::Min(hn::BitCast(d8, codes), hn::Set(d8, Coding::overflow));
        const auto signs =
            hn::BitCast(d8, even_and_odd(d16, hn::ShiftRight<8>(even.upper), odd.upper));
        return hn::OrAnd(numbers, signs, hn::Set(d8, 0x80));
    }

    HWY_NOINLINE V8 carefully(const uint8_t* pa, const uint8_t* pb) const {
        const DOut d8;
        const Lanes du;
        const auto a = hn::BitCast(du, hn::LoadU(d8, pa));
        const auto b = hn::BitCast(du, hn::LoadU(d8, pb));
        const auto lower = hn::Or(byte<0>(a, b), byte<8>(a, b));
        return hn::BitCast(d8, hn::Or(lower, hn::Or(byte<16>(a, b), byte<24>(a, b))));
    }

private:
    using P = Powers<Coding::exponent_bits, Coding::mantissa_bits>;
    using D16 = typename P::D16;
    using V16 = typename P::V16;
    using Lanes = hn::Repartition<uint32_t, DOut>;
    // The number of mantissa bits in fp32's upper half that the format lacks.
    static constexpr int lost = 7 - Coding::mantissa_bits;

    // The results for bytes in the upper halves of 16-bit lanes: fp32's upper half, and the same
    // rounded to nearest even, which is correct from bit `lost` on.
    struct Halves16 {
        V16 upper, rounded;
    };
    HWY_INLINE Halves16 combined(V16 a, V16 b) const {
        const D16 d16;
        const auto one = hn::Set(d16, 1);
        constexpr bool sum = std::is_same_v<Operator, Sum>;
        const auto value = P::divided(sum ? P::sum(a, b) : P::product(a, b), division_);
        const auto upper = P::upper(value);
        auto up = hn::And(hn::ShiftRight<lost>(upper), one);
        // Half way between two codes the last kept bit decides, unless the lower half has a bit
        // set. Sums of e5m2 have at most 8 bits in that case.
        if (!sum || kDivide || Coding::mantissa_bits > 2)
            up = hn::Min(hn::Or(up, P::lower(value)), one);
        return {upper, hn::Add(hn::Add(upper, hn::Set(d16, (1 << (lost - 1)) - 1)), up)};
    }

    template <int kBit>
    HWY_INLINE hn::Vec<Lanes> byte(hn::Vec<Lanes> a, hn::Vec<Lanes> b) const {
        const typename P::D d;
        const typename P::Int di;
        const auto code = [&](hn::Vec<Lanes> v) HWY_ATTR {
            return hn::And(hn::BitCast(di, hn::ShiftRight<kBit>(v)), hn::Set(di, 0xff));
        };
        const auto x = Coding::decode(d, code(a)), y = Coding::decode(d, code(b));
        const auto result = Coding::encode(d, division_.apply(d, Operator::apply(x, y)));
        return hn::ShiftLeft<kBit>(hn::BitCast(Lanes(), result));
    }

    Division<float, kDivide> division_;
};

#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

// Any form to fp8, two vectors of fp32 at a time: one of 16-bit lanes.
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

    explicit ToFp8(const ReduceArgs& args) : division_(args.divisor) {}

    HWY_INLINE hn::Vec<DOut> operator()(const A* pa, const B* pb) const {
        const D16 d16;
        ValuePair values = load<InA>(pa);
        if constexpr (!unary) {
            const ValuePair b = load<InB>(pb);
            values = {Operator::apply(values.lower, b.lower),
                      Operator::apply(values.upper, b.upper)};
        }
        const auto half = hn::Combine(d16, narrow(values.upper), narrow(values.lower));
        const auto codes = hn::BitCast(hn::RebindToSigned<D16>(), F::codes(d16, half));
        return hn::DemoteTo(DOut(), codes);
    }

private:
    struct ValuePair {
        hn::Vec<D> lower, upper;
    };

    template <class In>
    static HWY_INLINE ValuePair load(const typename In::Memory* p) {
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
        return float_to_half(d, F::rounded(d, division_.apply(d, v)));
    }

    Division<float, kDivide> division_;
};

template <class Operator, class F, int kForms>
struct Fp8 {
    static constexpr bool divide = (kForms & 8) != 0;
    using InA = std::conditional_t<(kForms & 1) != 0, Wide<float>, F>;
    using InB = std::conditional_t<(kForms & 2) != 0, Wide<float>, F>;
    static ReduceFn find(bool stream) {
#if HWY_TARGET <= HWY_AVX3_DL
        if constexpr (kForms == 0 && std::is_same_v<Operator, Sum>) {
            return pick<Fp8Sums<typename F::Coding, Fp8Pairs<Sum, F, false>>>(stream);
        }
#endif
        if constexpr ((kForms & 7) == 0) {
            return pick<Fp8Pairs<Operator, F, divide>>(stream);
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
struct Fp8 {
    static ReduceFn find(bool stream) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
        if constexpr ((kForms & 7) == 0) {
            return pick<Fp8Pairs<Operator, F, (kForms & 8) != 0>>(stream);
        }
#endif
        return Blockwise<Operator, F, kForms>::find(stream);
    }
};

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
