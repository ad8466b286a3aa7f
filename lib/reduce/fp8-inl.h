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

// 16-bit lanes that hold a byte each.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint8_t, D>> halves_to_bytes(D, hn::Vec<Halves<D>> v) {
    return hn::DemoteTo(hn::Rebind<uint8_t, D>(), hn::BitCast(hn::Rebind<int16_t, D>(), v));
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

// half_from_bytes(odd): what the even or odd bytes of 16-bit lanes are as fp16, in units of
// 1/scale. nearest(): fp16 to the format's precision, in place. It rounds a second time, which is
// harmless for the sum or product of two of the format (test/reduce tries all of them).
struct E5m2 {
    using Memory = uint8_t;
    template <class D>
    using Tag = hn::Rebind<uint8_t, D>;
    static constexpr float scale = 1;

    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* p) {
        const auto code = hn::PromoteTo(Halves<D>(), hn::LoadU(Tag<D>(), p));
        return half_to_float(d, hn::ShiftLeft<8>(code));
    }
    template <class D>
    static HWY_INLINE hn::Vec<Tag<D>> narrow(D d, hn::Vec<D> v) {
        const hn::RebindToSigned<D> di;
        auto exponent = hn::And(hn::BitCast(di, v), hn::Set(di, float_infinity));
        exponent = hn::Max(exponent, hn::Set(di, power_bits(-14)));
        // Else it might become an infinity's with the aligner's part added.
        exponent = hn::Min(exponent, hn::Set(di, power_bits(16)));
        const auto half = float_to_half(d, round_mantissa<2>(d, v, exponent));
        return halves_to_bytes(d, hn::ShiftRight<8>(half));
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

struct E4m3 {
    using Memory = uint8_t;
    template <class D>
    using Tag = hn::Rebind<uint8_t, D>;
    static constexpr float scale = 256;

    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const uint8_t* p) {
        const hn::Rebind<int16_t, D> d16;
        const hn::Rebind<int8_t, D> d8;
        const auto code = hn::PromoteTo(d16, hn::BitCast(d8, hn::LoadU(Tag<D>(), p)));
        // The sign is in two places then.
        const auto half = hn::And(hn::ShiftLeft<7>(code), hn::Set(d16, int16_t{-0x4001}));
        // The one NaN would be 480, whose next larger number has the exponent bit that it lacks.
        const auto next = hn::Add(half, hn::Set(d16, 0x80));
        const auto number = hn::OrAnd(half, next, hn::Set(d16, 0x4000));
        return hn::Mul(half_to_float(d, hn::BitCast(Halves<D>(), number)), hn::Set(d, scale));
    }
    template <class D>
    static HWY_INLINE hn::Vec<Tag<D>> narrow(D d, hn::Vec<D> v) {
        const hn::RebindToSigned<D> di;
        const Halves<D> d16;
        const auto scaled = hn::Mul(v, hn::Set(d, 1 / scale));
        // Without the exponent's highest bit, which only numbers that overflow have.
        auto exponent = hn::And(hn::BitCast(di, scaled), hn::Set(di, power_bits(0)));
        exponent = hn::Max(exponent, hn::Set(di, power_bits(-14)));
        const auto half = float_to_half(d, round_mantissa<3>(d, scaled, exponent));
        const auto number = hn::ShiftRight<7>(hn::And(half, hn::Set(d16, 0x7fff)));
        const auto code = hn::Min(number, hn::Set(d16, 0x7f));
        const auto byte = hn::OrAnd(code, hn::ShiftRight<8>(half), hn::Set(d16, 0x80));
        return halves_to_bytes(d, byte);
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

template <class Operator, class F, int kForms>
struct Fp8 {
    static ReduceFn find(bool stream) {
        if constexpr (kForms == 0) {
            return pick<Fp8Pairs<Operator, F>>(stream);
        } else {
            return Fused<Operator, F, kForms>::find(stream);
        }
    }
};

#else

using E4m3 = Encoded<uint8_t, Format<4, 3, false>>;
using E5m2 = Encoded<uint8_t, Format<5, 2, true>>;

template <class Operator, class F, int kForms>
using Fp8 = Blockwise<Operator, F, kForms>;

#endif

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
