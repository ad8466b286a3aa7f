// 8-bit floats in memory, by way of fp16 where there are instructions for that: its upper byte is
// an e5m2, and with one exponent bit more an e4m3 is an fp16 too small by 2^8, the difference of
// the biases. Subnormals come out right in both. Bits are those of small_float-inl.h's integers.
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_FP8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_FP8_INL_H
#undef TUTTI_REDUCE_FP8_INL_H
#else
#define TUTTI_REDUCE_FP8_INL_H
#endif

#include "reduce/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

// 16-bit lanes beside a vector of fp32: its fp16.
template <class D>
using Halves = hn::Rebind<uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<Halves<D>> float_to_half(D, hn::Vec<D> v) {
    return hn::BitCast(Halves<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
}

// Rounds v to nearest even after kMantissaBits bits, by adding and taking away a number whose last
// bit weighs as much as the last one to keep. `exponent`: v's as fp32 bits, not below the format's
// smallest normal number's, which makes subnormals come out of the same addition; where it is less
// than v's, v has overflowed, and still is as large afterwards.
template <int kMantissaBits, class D>
HWY_INLINE hn::Vec<D> round_mantissa(D d, hn::Vec<D> v, hn::Vec<hn::RebindToSigned<D>> exponent) {
    const hn::RebindToSigned<D> di;
    // One and a half times the power of two: so the sum's exponent is the same for both signs.
    constexpr int up = float_mantissa_bits - kMantissaBits;
    constexpr int32_t half_more = 1 << (float_mantissa_bits - 1);
    const auto aligner =
        hn::BitCast(d, hn::Add(exponent, hn::Set(di, (up << float_mantissa_bits) + half_more)));
    // A zero lost its sign in between.
    return hn::CopySignToAbs(hn::Sub(hn::Add(v, aligner), aligner), v);
}

// The lower bytes of one, the upper bytes of the other.
template <class D16>
HWY_INLINE hn::Vec<D16> even_and_odd(D16 d16, hn::Vec<D16> even, hn::Vec<D16> odd) {
    const hn::Repartition<uint8_t, D16> d8;
    return hn::BitCast(d16, hn::OddEven(hn::BitCast(d8, odd), hn::BitCast(d8, even)));
}

// fp32 bits of 2^exponent.
constexpr int32_t power_bits(int exponent) {
    return (float_bias + exponent) << float_mantissa_bits;
}

// What the two formats differ in, on 16-bit lanes of their codes and of fp16, and on fp32:
//   halves(), value()         a code with its sign extended to fp16, that to the fp32 it stands for
//   rounded(), codes()        any fp32 to one that fp16 holds exactly, fp16 to the code
//   even_halves(), pack() …   two codes in each lane, for Fp8Pairs
// fp16 is in units of 1/scale.
struct E5m2Halves {
    static constexpr float scale = 1;

    template <class D16>
    static HWY_INLINE hn::Vec<D16> halves(D16, hn::Vec<D16> codes) {
        return hn::ShiftLeft<8>(codes);
    }
    template <class D>
    static HWY_INLINE hn::Vec<D> value(D d, hn::Vec<Halves<D>> half) {
        return half_to_float(d, half);
    }
    template <class D>
    static HWY_INLINE hn::Vec<D> rounded(D d, hn::Vec<D> v) {
        const hn::RebindToSigned<D> di;
        auto exponent = hn::And(hn::BitCast(di, v), hn::Set(di, float_infinity));
        exponent = hn::Max(exponent, hn::Set(di, power_bits(-14)));
        // Else it might become an infinity's with the aligner's part added.
        exponent = hn::Min(exponent, hn::Set(di, power_bits(16)));
        return round_mantissa<2>(d, v, exponent);
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> codes(D16, hn::Vec<D16> half) {
        return hn::ShiftRight<8>(half);
    }

    template <class D16>
    static HWY_INLINE hn::Vec<D16> even_halves(D16, hn::Vec<D16> codes) {
        return hn::ShiftLeft<8>(codes);
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> odd_halves(D16 d16, hn::Vec<D16> codes) {
        return hn::And(codes, hn::Set(d16, 0xff00));
    }
    // Code in the upper byte. NaNs that came from codes end in eight zeros: nothing is carried.
    template <class D16>
    static HWY_INLINE hn::Vec<D16> nearest(D16 d16, hn::Vec<D16> half) {
        const auto odd = hn::And(hn::ShiftRight<8>(half), hn::Set(d16, 1));
        return hn::Add(hn::Add(half, hn::Set(d16, 0x7f)), odd);
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> pack(D16 d16, hn::Vec<D16> even, hn::Vec<D16> odd) {
        return even_and_odd(d16, hn::ShiftRight<8>(nearest(d16, even)), nearest(d16, odd));
    }
    // Before: a's NaN twice, as same_nan() has it. After: nothing, fp16 has NaNs.
    template <class D8>
    static HWY_INLINE hn::Vec<D8> second(D8 d8, hn::Vec<D8> a, hn::Vec<D8> b) {
        const auto nan = hn::Gt(hn::And(a, hn::Set(d8, 0x7f)), hn::Set(d8, 0x7c));
        return hn::IfThenElse(nan, a, b);
    }
    template <class D8>
    static HWY_INLINE hn::Vec<D8> with_nans(D8, hn::Vec<D8>, hn::Vec<D8>, hn::Vec<D8> result) {
        return result;
    }
};

struct E4m3Halves {
    static constexpr float scale = 256;

    template <class D16>
    static HWY_INLINE hn::Vec<D16> halves(D16 d16, hn::Vec<D16> codes) {
        // The sign is in two places then.
        const auto half = hn::And(hn::ShiftLeft<7>(codes), hn::Set(d16, 0xbfff));
        // The one NaN would be 480, whose next larger number has the exponent bit that it lacks.
        const auto next = hn::Add(half, hn::Set(d16, 0x80));
        return hn::OrAnd(half, next, hn::Set(d16, 0x4000));
    }
    template <class D>
    static HWY_INLINE hn::Vec<D> value(D d, hn::Vec<Halves<D>> half) {
        return hn::Mul(half_to_float(d, half), hn::Set(d, scale));
    }
    template <class D>
    static HWY_INLINE hn::Vec<D> rounded(D d, hn::Vec<D> v) {
        const hn::RebindToSigned<D> di;
        const auto scaled = hn::Mul(v, hn::Set(d, 1 / scale));
        // Without the exponent's highest bit, which only numbers that overflow have.
        auto exponent = hn::And(hn::BitCast(di, scaled), hn::Set(di, power_bits(0)));
        exponent = hn::Max(exponent, hn::Set(di, power_bits(-14)));
        return round_mantissa<3>(d, scaled, exponent);
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> codes(D16 d16, hn::Vec<D16> half) {
        const auto number = hn::ShiftRight<7>(hn::And(half, hn::Set(d16, 0x7fff)));
        // 480 and above is NaN.
        const auto code = hn::Min(number, hn::Set(d16, 0x7f));
        return hn::OrAnd(code, hn::ShiftRight<8>(half), hn::Set(d16, 0x80));
    }

    template <class D16>
    static HWY_INLINE hn::Vec<D16> odd_halves(D16 d16, hn::Vec<D16> codes) {
        const hn::RebindToSigned<D16> di;
        const auto shifted = hn::BitCast(d16, hn::ShiftRight<1>(hn::BitCast(di, codes)));
        return hn::And(shifted, hn::Set(d16, 0xbf80));
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> even_halves(D16 d16, hn::Vec<D16> codes) {
        return odd_halves(d16, hn::ShiftLeft<8>(codes));
    }
    // Code from bit 7 on, sign above.
    template <class D16>
    static HWY_INLINE hn::Vec<D16> nearest(D16 d16, hn::Vec<D16> half) {
        const auto odd = hn::And(hn::ShiftRight<7>(half), hn::Set(d16, 1));
        return hn::Add(hn::Add(half, hn::Set(d16, 0x3f)), odd);
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> pack(D16 d16, hn::Vec<D16> even, hn::Vec<D16> odd) {
        const hn::Repartition<uint8_t, D16> d8;
        const auto signs = even_and_odd(d16, hn::ShiftRight<8>(even), odd);
        even = hn::ShiftLeft<1>(nearest(d16, even));
        odd = hn::ShiftLeft<1>(nearest(d16, odd));
        const auto codes = hn::BitCast(d8, even_and_odd(d16, hn::ShiftRight<8>(even), odd));
        // 480 and above is NaN.
        const auto numbers = hn::BitCast(d16, hn::Min(codes, hn::Set(d8, 0x7f)));
        return hn::OrAnd(numbers, signs, hn::Set(d16, 0x8080));
    }
    // The one NaN reads as ±480: what comes of it is put right at the end.
    template <class D8>
    static HWY_INLINE hn::Vec<D8> second(D8, hn::Vec<D8>, hn::Vec<D8> b) {
        return b;
    }
    template <class D8>
    static HWY_INLINE hn::Vec<D8> with_nans(D8 d8, hn::Vec<D8> a, hn::Vec<D8> b,
                                            hn::Vec<D8> result) {
        const auto nan = hn::Set(d8, 0x7f);
        result = hn::IfThenElse(hn::Eq(hn::And(b, nan), nan), b, result);
        return hn::IfThenElse(hn::Eq(hn::And(a, nan), nan), a, result);
    }
};

// As a form of Combine, to read only.
template <class Formatting>
struct ByHalves : Formatting {
    using Memory = uint8_t;
    // From bytes to 16-bit lanes, any number of them.
    template <class D16>
    static HWY_INLINE hn::Vec<D16> load_halves(D16 d16, const uint8_t* p) {
        const hn::Rebind<int8_t, D16> d8;
        const hn::RebindToSigned<D16> di16;
        const auto codes = hn::PromoteTo(di16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(p)));
        return Formatting::halves(d16, hn::BitCast(d16, codes));
    }
    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* p) {
        return Formatting::value(d, load_halves(Halves<D>(), p));
    }
};
using E5m2 = ByHalves<E5m2Halves>;
using E4m3 = ByHalves<E4m3Halves>;

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

using E4m3 = Encoded<uint8_t, Format<4, 3, false>>;
using E5m2 = Encoded<uint8_t, Format<5, 2, true>>;

template <class Operator, class F, int kForms>
using Fp8 = Blockwise<Operator, F, kForms>;

template <class F>
ReduceFn fp8_convert(SmallForms forms, bool stream) {
    return small_convert<F>(forms, stream);
}

#endif

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
