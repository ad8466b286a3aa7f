// 16- and 8-bit floats as fp32 without a conversion: exponent and mantissa are shifted to where
// fp32 has them, which makes the number too small by a power of two, subnormals (fp32's too)
// included. The sum of two such numbers is right to the bit, and the way back is a shift. What
// infinity and NaN mean is lost: who uses this looks for them first.
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_POWERS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_POWERS_INL_H
#undef TUTTI_REDUCE_POWERS_INL_H
#else
#define TUTTI_REDUCE_POWERS_INL_H
#endif

#include "reduce/small_float-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR

// A 32-bit lane holds two 16-bit ones, the even one in its lower half. Of a format with so many
// exponent and mantissa bits, in the upper end of a 16-bit lane.
template <int kExponentBits, int kMantissaBits>
struct Powers {
    using D16 = hn::ScalableTag<uint16_t>;
    using V16 = hn::Vec<D16>;
    using D = hn::Repartition<float, D16>;
    using Int = hn::Repartition<int32_t, D16>;
    using Short = hn::Repartition<int16_t, D16>;

    // fp32's exponent has so many bits more.
    static constexpr int shift = 8 - kExponentBits;
    static constexpr int bits = kExponentBits + kMantissaBits;
    // Sign, and what is left of it after the shift.
    static constexpr int32_t mask = INT32_MIN | ((1 << bits) - 1) << (31 - shift - bits);
    // Between the number and its fp32.
    static constexpr int32_t factor_exponent = 127 - ((1 << (kExponentBits - 1)) - 1);

    struct Pair {
        hn::Vec<D> even, odd;
    };

    static HWY_INLINE Pair widened(V16 codes) {
        const Int di;
        const auto odd = hn::ShiftRight<shift>(hn::BitCast(di, codes));
        // Sign extension and shift in one: even × 2^(16 - shift) + odd × 0.
        const auto coefficients = hn::BitCast(Short(), hn::Set(di, 1 << (16 - shift)));
        auto none = hn::Zero(di);
        const auto even = hn::ReorderWidenMulAccumulate(di, hn::BitCast(Short(), codes),
                                                        coefficients, hn::Zero(di), none);
        const auto kept = hn::Set(di, mask);
        return {hn::BitCast(D(), hn::And(even, kept)), hn::BitCast(D(), hn::And(odd, kept))};
    }

    static HWY_INLINE Pair sum(V16 a, V16 b) {
        const Pair x = widened(a), y = widened(b);
        return {hn::Add(x.even, y.even), hn::Add(x.odd, y.odd)};
    }

    // Exact if the mantissas of both fit into one, and all products are fp32's subnormals at least.
    static HWY_INLINE Pair product(V16 a, V16 b) {
        const Pair x = widened(a), y = widened(b);
        const auto factor =
            hn::BitCast(D(), hn::Set(Int(), (float_bias + factor_exponent) << float_mantissa_bits));
        return {hn::Mul(hn::Mul(x.even, factor), y.even), hn::Mul(hn::Mul(x.odd, factor), y.odd)};
    }

    // The upper and the lower halves of fp32, in 16-bit lanes.
    static HWY_INLINE V16 upper(const Pair& v) {
        const D16 d16;
        const auto even = hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<Int>(), v.even));
        return hn::OddEven(hn::BitCast(d16, v.odd), hn::BitCast(d16, even));
    }
    static HWY_INLINE V16 lower(const Pair& v) {
        const D16 d16;
        const auto odd = hn::ShiftLeft<16>(hn::BitCast(Int(), v.odd));
        return hn::OddEven(hn::BitCast(d16, odd), hn::BitCast(d16, v.even));
    }
};

// The lower bytes of one, the upper bytes of the other.
template <class D16>
HWY_INLINE hn::Vec<D16> even_and_odd(D16 d16, hn::Vec<D16> even, hn::Vec<D16> odd) {
    const hn::Repartition<uint8_t, D16> d8;
    return hn::BitCast(d16, hn::OddEven(hn::BitCast(d8, odd), hn::BitCast(d8, even)));
}

// Whether any magnitude of a group's vectors is above the largest finite one. `magnitude`: all bits
// but the sign; signed lanes, for which there is a maximum everywhere.
template <class D, std::size_t kGroup, class Lane>
HWY_INLINE bool any_above(D d, hn::TFromD<D> magnitude, hn::TFromD<D> most, const Lane* a,
                          const Lane* b) {
    const auto kept = hn::Set(d, magnitude);
    auto largest = hn::Zero(d);
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < kGroup; ++i) {
        const auto* x = reinterpret_cast<const hn::TFromD<D>*>(a) + i * hn::Lanes(d);
        const auto* y = reinterpret_cast<const hn::TFromD<D>*>(b) + i * hn::Lanes(d);
        const auto larger = hn::Max(hn::And(hn::LoadU(d, x), kept), hn::And(hn::LoadU(d, y), kept));
        largest = hn::Max(largest, larger);
    }
    return !hn::AllFalse(d, hn::Gt(largest, hn::Set(d, most)));
}

// What kernels have in common that have a short way for groups without infinities and NaNs. Self:
//   Self::magnitude, Self::last_finite   of a code without its sign: all bits, the largest number
//   Self::quickly(a, b)                  a vector's result, if all operands are finite
//   Self::carefully(a, b)                any vector's
template <class Self, class Code>
struct QuickIfFinite {
    using A = Code;
    using B = Code;
    using Out = Code;
    using DOut = hn::ScalableTag<Code>;
    static constexpr bool unary = false;
    static constexpr bool subnormals = true;
    static constexpr std::size_t group = vectors_in_line<DOut>;

    HWY_INLINE hn::Vec<DOut> operator()(const Code* a, const Code* b) const {
        return unusual<1>(a, b) ? Self::carefully(a, b) : Self::quickly(a, b);
    }

    template <class Store>
    HWY_INLINE void several(const Code* a, const Code* b, const Store& store) const {
        const std::size_t lanes = hn::Lanes(DOut());
        if (HWY_UNLIKELY(unusual<group>(a, b))) {
            for (std::size_t i = 0; i < group; ++i)
                store(i, Self::carefully(a + i * lanes, b + i * lanes));
            return;
        }
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < group; ++i)
            store(i, Self::quickly(a + i * lanes, b + i * lanes));
    }

private:
    template <std::size_t kGroup>
    static HWY_INLINE bool unusual(const Code* a, const Code* b) {
        return any_above<hn::RebindToSigned<DOut>, kGroup>({}, Self::magnitude, Self::last_finite,
                                                           a, b);
    }
};

#endif

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
