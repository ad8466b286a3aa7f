// 8-bit floats in memory, converted through fp16 if there are instructions for that. The upper byte
// of an fp16 is an e5m2. An e4m3 with one more exponent bit is an fp16 too small by 2^8, the
// difference of the biases. Subnormals are correct in both. The bits equal those of
// small_float-inl.h's integers. Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_FP8_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_FP8_INL_H
#undef TUTTI_REDUCE_FP8_INL_H
#else
#define TUTTI_REDUCE_FP8_INL_H
#endif

#include "reduce/powers-inl.h"

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

// Rounds v to nearest even after kMantissaBits bits: adds and subtracts a number whose last bit
// weighs as much as the last one to keep. `exponent`: that of v as fp32 bits, but at least that of
// the format's smallest normal number, so that the same addition rounds subnormals. If `exponent`
// is less than v's, v has overflowed, and the result is as large as v.
template <int kMantissaBits, class D>
HWY_INLINE hn::Vec<D> round_mantissa(D d, hn::Vec<D> v, hn::Vec<hn::RebindToSigned<D>> exponent) {
    const hn::RebindToSigned<D> di;
    // One and a half times the power of two, so that the sum's exponent is the same for both signs.
    constexpr int up = float_mantissa_bits - kMantissaBits;
    constexpr int32_t half_more = 1 << (float_mantissa_bits - 1);
    const auto aligner =
        hn::BitCast(d, hn::Add(exponent, hn::Set(di, (up << float_mantissa_bits) + half_more)));
    // A zero has lost its sign in the addition.
    return hn::CopySignToAbs(hn::Sub(hn::Add(v, aligner), aligner), v);
}

// fp32 bits of 2^exponent.
constexpr int32_t power_bits(int exponent) {
    return (float_bias + exponent) << float_mantissa_bits;
}

// The conversions in which the two formats differ, on 16-bit lanes and on fp32:
//   halves(), value()         sign-extended code to fp16, that to the fp32 the code stands for
//   rounded(), codes()        fp32 to an fp32 that fp16 holds exactly, fp16 to code
struct E5m2Halves {
    using Coding = Format<5, 2, true>;

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
        // Without this the sum with the aligner might get an infinity's exponent.
        exponent = hn::Min(exponent, hn::Set(di, power_bits(16)));
        return round_mantissa<2>(d, v, exponent);
    }
    template <class D16>
    static HWY_INLINE hn::Vec<D16> codes(D16, hn::Vec<D16> half) {
        return hn::ShiftRight<8>(half);
    }
};

struct E4m3Halves {
    using Coding = Format<4, 3, false>;
    static constexpr float scale = 256;  // fp16 is in units of 1/256

    template <class D16>
    static HWY_INLINE hn::Vec<D16> halves(D16 d16, hn::Vec<D16> codes) {
        // The sign is now in two bits.
        const auto half = hn::And(hn::ShiftLeft<7>(codes), hn::Set(d16, 0xbfff));
        // The one NaN would read as 480; its next larger number has the exponent bit that the NaN
        // must get.
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
        // Drops the exponent's highest bit, which only numbers that overflow have.
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

#else

using E4m3 = Encoded<uint8_t, Format<4, 3, false>>;
using E5m2 = Encoded<uint8_t, Format<5, 2, true>>;

#endif

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
