// 16- and 8-bit floats as fp32 without a conversion: exponent and mantissa are shifted to fp32's
// positions. That makes the number too small by a power of two, also if it is subnormal (in fp32
// too). The sum of two such numbers is exact to the bit, also divided by a number that is not too
// large, and a shift converts back. Infinity and NaN lose their meaning, so the caller checks for
// them first. Included once per instruction set, hence the toggled guard.
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

// A 32-bit lane holds two 16-bit ones, the even one in its lower half. The number, with
// kExponentBits and kMantissaBits, is in the upper end of a 16-bit lane.
template <int kExponentBits, int kMantissaBits>
struct Powers {
    using D16 = hn::ScalableTag<uint16_t>;
    using V16 = hn::Vec<D16>;
    using D = hn::Repartition<float, D16>;
    using Int = hn::Repartition<int32_t, D16>;
    using Short = hn::Repartition<int16_t, D16>;

    // The difference in exponent bits between fp32 and the format.
    static constexpr int shift = 8 - kExponentBits;
    static constexpr int bits = kExponentBits + kMantissaBits;
    // The bits of the sign and of the number after the shift.
    static constexpr int32_t mask = INT32_MIN | ((1 << bits) - 1) << (31 - shift - bits);
    // The exponent of the factor between the number and its fp32.
    static constexpr int32_t factor_exponent = 127 - ((1 << (kExponentBits - 1)) - 1);

    // fp32's subnormals have at least 13 bits more than the format's. A quotient of such sums is
    // half way between two of the format's numbers, or at least 1 / (2 × divisor) of their distance
    // away from there; fp32's rounding error must be less.
    static constexpr int32_t largest_divisor = 1 << 12;

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

    template <class Division>
    static HWY_INLINE Pair divided(const Pair& v, const Division& by) {
        return {by.apply(D(), v.even), by.apply(D(), v.odd)};
    }

    // Exact if the mantissas of both fit into one, and no product is below fp32's subnormals.
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

// Base of kernels with a short path for groups without infinities and NaNs. Self:
//   Self::magnitude, Self::last_finite   of a code without its sign: all bits, the largest number
//   self.quickly(a, b)                   combines two vectors whose numbers are all finite
//   self.carefully(a, b)                 combines any two, in memory
template <class Self, class Code>
struct QuickIfFinite {
    using A = Code;
    using B = Code;
    using Out = Code;
    using DOut = hn::ScalableTag<Code>;
    using V = hn::Vec<DOut>;
    static constexpr bool unary = false;
    static constexpr std::size_t group = vectors_in_line<DOut>;

    // never: the divisor is too large for the short path; no number passes its check.
    explicit QuickIfFinite(bool never) : last_(never ? -1 : Self::last_finite) {}

    HWY_INLINE V operator()(const Code* a, const Code* b) const {
        const V x = hn::LoadU(DOut(), a), y = hn::LoadU(DOut(), b);
        return finite(larger(hn::Zero(Signed()), x, y)) ? self().quickly(x, y)
                                                        : self().carefully(a, b);
    }

    // Checks the whole group before it stores a result, because results may overwrite operands.
    template <class Store>
    HWY_INLINE void several(const Code* a, const Code* b, const Store& store) const {
        const std::size_t lanes = hn::Lanes(DOut());
        V results[group];
        auto largest = hn::Zero(Signed());
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < group; ++i) {
            const V x = hn::LoadU(DOut(), a + i * lanes), y = hn::LoadU(DOut(), b + i * lanes);
            largest = larger(largest, x, y);
            results[i] = self().quickly(x, y);
        }
        if (HWY_UNLIKELY(!finite(largest))) {
            for (std::size_t i = 0; i < group; ++i)
                store(i, self().carefully(a + i * lanes, b + i * lanes));
            return;
        }
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < group; ++i) store(i, results[i]);
    }

private:
    // Every instruction set has a maximum of signed lanes.
    using Signed = hn::RebindToSigned<DOut>;
    using Magnitudes = hn::Vec<Signed>;

    static HWY_INLINE Magnitudes larger(Magnitudes largest, V a, V b) {
        const Signed d;
        const auto kept = hn::Set(d, Self::magnitude);
        const auto x = hn::And(hn::BitCast(d, a), kept), y = hn::And(hn::BitCast(d, b), kept);
        return hn::Max(largest, hn::Max(x, y));
    }
    HWY_INLINE bool finite(Magnitudes largest) const {
        return hn::AllFalse(Signed(), hn::Gt(largest, hn::Set(Signed(), last_)));
    }
    HWY_INLINE const Self& self() const { return static_cast<const Self&>(*this); }

    hn::TFromD<Signed> last_;
};

#endif

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
