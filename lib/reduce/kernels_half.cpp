// float16 and bfloat16: sum, prod, avg in fp32, and the conversions.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_half.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/powers-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
// bfloat16 ⊕ bfloat16 to bfloat16: two numbers stay in their 32-bit lane and are separated by
// shifts and masks, instead of being spread over two vectors and packed again.
template <class Operator, bool kDivide>
struct BfloatPairs {
    using A = uint16_t;
    using B = uint16_t;
    using Out = uint16_t;
    using DOut = hn::ScalableTag<uint16_t>;
    static constexpr bool unary = false;
    static constexpr bool hot = !kDivide;
    static constexpr std::size_t group = vectors_in_line<DOut>;

    explicit BfloatPairs(const ReduceArgs& args) : division_(args.divisor) {}

    HWY_INLINE hn::Vec<DOut> operator()(const uint16_t* pa, const uint16_t* pb) const {
        const Lanes a = take_apart(pa);
        const Lanes b = take_apart(pb);
        return rounded({division_.apply(D(), Operator::apply(a.low, b.low)),
                        division_.apply(D(), Operator::apply(a.high, b.high))});
    }

    template <class Store>
    HWY_INLINE void several(const uint16_t* a, const uint16_t* b, const Store& store) const {
        one_by_one(*this, a, b, store);
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

    // Rounds both numbers at a time: the kept bits, and the lower bits, which decide whether 1 is
    // added. If the kept number is even, 1 is subtracted from the lower bits; then their highest
    // bit decides. A NaN's lower bits are 0: it is an operand's, or the processor's own.
    static HWY_INLINE hn::Vec<DOut> rounded(const Lanes& v) {
        const DOut d16;
        const Bits du;
        const auto low = hn::BitCast(du, v.low);
        const auto high = hn::BitCast(du, v.high);
        const auto kept =
            hn::OddEven(hn::BitCast(d16, high), hn::BitCast(d16, hn::ShiftRight<16>(low)));
        const auto lost =
            hn::OddEven(hn::BitCast(d16, hn::ShiftLeft<16>(high)), hn::BitCast(d16, low));
        const auto even = hn::AndNot(kept, hn::Set(d16, 1));
        return hn::Add(kept, hn::ShiftRight<15>(hn::SaturatedSub(lost, even)));
    }

    Division<float, kDivide> division_;
};
#endif

// float16 without instructions for it.
template <class F>
inline constexpr bool emulated = std::is_same_v<F, Encoded<uint16_t, Format<5, 10, true>>>;

#if HWY_TARGET != HWY_SCALAR
// Emulated float16 ⊕ float16 to float16, two numbers in a 32-bit lane. If operands and results are
// all zero or normal, a multiplication by the power of two between the biases converts.
template <class Operator, bool kDivide>
struct EmulatedPairs {
    using A = uint16_t;
    using B = uint16_t;
    using Out = uint16_t;
    using DOut = hn::ScalableTag<uint16_t>;
    static constexpr bool unary = false;
    static constexpr bool hot = false;

    explicit EmulatedPairs(const ReduceArgs& args) : division_(args.divisor) {}

    HWY_INLINE hn::Vec<DOut> operator()(const uint16_t* pa, const uint16_t* pb) const {
        const DOut d16;
        const Int di;
        const auto a = hn::BitCast(di, hn::LoadU(d16, pa));
        const auto b = hn::BitCast(di, hn::LoadU(d16, pb));
        const auto even = division_.apply(
            D(), Operator::apply(scaled(hn::ShiftLeft<16>(a)), scaled(hn::ShiftLeft<16>(b))));
        const auto odd = division_.apply(D(), Operator::apply(scaled(a), scaled(b)));
        const auto operands = unusual(hn::BitCast(d16, a), hn::BitCast(d16, b));
        const auto fine = hn::AndNot(operands, usual(hn::BitCast(di, even), hn::BitCast(di, odd)));
        if (HWY_UNLIKELY(!hn::AllTrue(di, hn::Eq(fine, hn::Set(di, -1))))) {
            return carefully(a, b);
        }
        const auto signs = both(hn::ShiftRight<16>(hn::BitCast(di, even)), hn::BitCast(di, odd));
        const auto numbers =
            both(hn::ShiftRight<13>(rounded(even)), hn::ShiftLeft<3>(rounded(odd)));
        return hn::OrAnd(numbers, signs, hn::Set(d16, 0x8000));
    }

private:
    using Int = hn::Repartition<int32_t, DOut>;
    using D = hn::Repartition<float, DOut>;
    static constexpr int bias_bits = 112 << float_mantissa_bits;  // 2^112 less 1.0
    static constexpr int32_t one = float_bias << float_mantissa_bits;

    static HWY_INLINE hn::Vec<D> power_of_two(int32_t bits) {
        return hn::BitCast(D(), hn::Set(Int(), bits));
    }
    // The upper half of each lane, a number.
    static HWY_INLINE hn::Vec<D> scaled(hn::Vec<Int> code) {
        const auto bits = hn::And(hn::ShiftRight<3>(code), hn::Set(Int(), -0x70002000));
        return hn::Mul(hn::BitCast(D(), bits), power_of_two(one + bias_bits));
    }
    // fp16 without the sign, from bit 13 on; lower bits are undefined.
    static HWY_INLINE hn::Vec<Int> rounded(hn::Vec<D> v) {
        const Int di;
        const auto bits = hn::BitCast(di, hn::Mul(v, power_of_two(one - bias_bits)));
        const auto last = hn::And(hn::ShiftRight<13>(bits), hn::Set(di, 1));
        return hn::Add(hn::Add(bits, hn::Set(di, 0xfff)), last);
    }
    static HWY_INLINE hn::Vec<DOut> both(hn::Vec<Int> even, hn::Vec<Int> odd) {
        return hn::OddEven(hn::BitCast(DOut(), odd), hn::BitCast(DOut(), even));
    }
    // Not 0 if a number is subnormal, infinite or NaN. Zero minus one is larger than any number.
    static HWY_INLINE hn::Vec<Int> unusual(hn::Vec<DOut> a, hn::Vec<DOut> b) {
        const DOut d16;
        const auto mag_a = hn::And(a, hn::Set(d16, 0x7fff));
        const auto mag_b = hn::And(b, hn::Set(d16, 0x7fff));
        const auto unit = hn::Set(d16, 1);
        const auto smaller = hn::Min(hn::Sub(mag_a, unit), hn::Sub(mag_b, unit));
        const auto below = hn::SaturatedSub(hn::Set(d16, 0x3ff), smaller);
        const auto above = hn::SaturatedSub(hn::Max(mag_a, mag_b), hn::Set(d16, 0x7bff));
        return hn::BitCast(Int(), hn::Or(below, above));
    }
    // All ones if both are zero, or normal and finite in fp16.
    static HWY_INLINE hn::Vec<Int> usual(hn::Vec<Int> a, hn::Vec<Int> b) {
        const Int di;
        const hn::RebindToUnsigned<Int> du;
        const auto mag_a = hn::And(a, hn::Set(di, INT32_MAX));
        const auto mag_b = hn::And(b, hn::Set(di, INT32_MAX));
        const auto unit = hn::Set(di, 1);
        const auto least = hn::Set(du, (113u << float_mantissa_bits) - 1);
        const auto smaller =
            hn::Min(hn::BitCast(du, hn::Sub(mag_a, unit)), hn::BitCast(du, hn::Sub(mag_b, unit)));
        const auto not_below = hn::Eq(hn::Min(smaller, least), least);
        const auto not_above = hn::Lt(hn::Max(mag_a, mag_b), hn::Set(di, 0x477ff000));  // 65520
        return hn::And(hn::BitCast(di, hn::VecFromMask(du, not_below)),
                       hn::VecFromMask(di, not_above));
    }

public:
    HWY_NOINLINE hn::Vec<DOut> carefully(hn::Vec<Int> a, hn::Vec<Int> b) const {
        const auto low = hn::Set(Int(), 0xffff);
        const auto even = slowly(hn::And(a, low), hn::And(b, low));
        const auto odd =
            slowly(hn::And(hn::ShiftRight<16>(a), low), hn::And(hn::ShiftRight<16>(b), low));
        return both(even, hn::ShiftLeft<16>(odd));
    }

private:
    HWY_INLINE hn::Vec<Int> slowly(hn::Vec<Int> a, hn::Vec<Int> b) const {
        using Formatting = Format<5, 10, true>;
        const D d;
        const auto sum = Operator::apply(Formatting::decode(d, a), Formatting::decode(d, b));
        return Formatting::encode(d, division_.apply(d, sum));
    }

    Division<float, kDivide> division_;
};
#endif

#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
// Sums of emulated float16, and averages.
template <bool kDivide>
struct EmulatedSums : QuickIfFinite<EmulatedSums<kDivide>, uint16_t> {
    using Base = QuickIfFinite<EmulatedSums<kDivide>, uint16_t>;
    using DOut = typename Base::DOut;
    using V16 = hn::Vec<DOut>;
    static constexpr bool hot = !kDivide;
    static constexpr int16_t magnitude = 0x7fff;
    static constexpr int16_t last_finite = 0x7bff;

    explicit EmulatedSums(const ReduceArgs& args)
        : Base(kDivide && args.divisor > P::largest_divisor),
          division_(args.divisor),
          slow_(args) {}

    HWY_INLINE V16 quickly(V16 a, V16 b) const {
        const DOut d16;
        const auto sum = P::divided(P::sum(a, b), division_);
        const auto upper = P::upper(sum), lower = P::lower(sum);
        // Three bits of a code are in the lower half; the 13 bits below them decide whether 1 is
        // added to the code: the carry of those + 0xfff + (the last bit kept), of 17 bits.
        const auto under_half = hn::Or(hn::ShiftRight<13>(lower), hn::Set(d16, 0xffe));
        const auto last = hn::ShiftRight<12>(hn::AverageRound(lower, under_half));
        const auto numbers = hn::Add(hn::ShiftLeft<3>(upper), last);
        const hn::RebindToSigned<DOut> di16;
        const auto kept = hn::Min(hn::BitCast(di16, numbers), hn::Set(di16, 0x7c00));
        return hn::OrAnd(hn::BitCast(d16, kept), upper, hn::Set(d16, 0x8000));
    }

    HWY_NOINLINE V16 carefully(const uint16_t* a, const uint16_t* b) const {
        const DOut d16;
        const typename P::Int di;
        return slow_.carefully(hn::BitCast(di, hn::LoadU(d16, a)),
                               hn::BitCast(di, hn::LoadU(d16, b)));
    }

private:
    using P = Powers<5, 10>;
    Division<float, kDivide> division_;
    EmulatedPairs<Sum, kDivide> slow_;
};
#endif

template <class Operator, class F, int kForms>
struct Half {
    static constexpr bool divide = (kForms & 8) != 0;
    static ReduceFn find(bool stream) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
        if constexpr ((kForms & 7) == 0 && emulated<F> && std::is_same_v<Operator, Sum>) {
            return pick<EmulatedSums<divide>>(stream);
        }
#endif
#if HWY_TARGET != HWY_SCALAR
        if constexpr ((kForms & 7) == 0 && std::is_same_v<F, Bfloat16>) {
            return pick<BfloatPairs<Operator, divide>>(stream);
        } else if constexpr ((kForms & 7) == 0 && emulated<F>) {
            return pick<EmulatedPairs<Operator, divide>>(stream);
        }
#endif
        // The loop converts if that takes an instruction or a few.
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
