// 16- and 8-bit floats in memory, fp32 in registers. Rounds to nearest even, with integer
// operations if there is no instruction for it, so that every instruction set gives the same bits.
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_SMALL_FLOAT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_SMALL_FLOAT_INL_H
#undef TUTTI_REDUCE_SMALL_FLOAT_INL_H
#else
#define TUTTI_REDUCE_SMALL_FLOAT_INL_H
#endif

#include "reduce/combine-inl.h"
#include "reduce/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

inline constexpr int float_bias = 127;
inline constexpr int float_mantissa_bits = 23;
inline constexpr int32_t float_infinity = 0x7f800000;
inline constexpr int32_t float_quiet = 0x00400000;

// A format with fewer bits than fp32, with or without infinities. Without (e4m3fn), the code of all
// ones is the only NaN and overflow becomes NaN, as in ml_dtypes and PyTorch.
template <int kExponentBits, int kMantissaBits, bool kInfinity>
struct Format {
    static constexpr int exponent_bits = kExponentBits;
    static constexpr int mantissa_bits = kMantissaBits;
    static constexpr int magnitude_bits = kExponentBits + kMantissaBits;
    static constexpr int32_t magnitude = (1 << magnitude_bits) - 1;
    static constexpr int shift = float_mantissa_bits - kMantissaBits;
    static constexpr int rebias = float_bias - ((1 << (kExponentBits - 1)) - 1);
    static constexpr int32_t infinity = magnitude - ((1 << kMantissaBits) - 1);
    static constexpr int32_t last_finite = (kInfinity ? infinity : magnitude) - 1;
    // The code to which values past the largest finite one round.
    static constexpr int32_t overflow = kInfinity ? infinity : magnitude;
    // fp32 with the exponent of the format's smallest normal number.
    static constexpr int32_t smallest_normal = (rebias + 1) << float_mantissa_bits;

    // Codes in 32-bit lanes to fp32. NaNs keep sign and payload and become quiet.
    template <class D>
    static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::RebindToSigned<D>> code) {
        const hn::RebindToSigned<D> di;
        const auto mag = hn::ShiftLeft<shift>(hn::And(code, hn::Set(di, magnitude)));
        const auto sign =
            hn::ShiftLeft<31 - magnitude_bits>(hn::And(code, hn::Set(di, 1 << magnitude_bits)));
        auto bits = hn::Add(mag, hn::Set(di, rebias << float_mantissa_bits));
        // Adds a leading one to the subnormal, which makes it a normal number, and subtracts it
        // again: this avoids fp32 subnormals, which a flush-to-zero mode would lose.
        const auto one = hn::Set(di, smallest_normal);
        const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(mag, one)), hn::BitCast(d, one));
        bits = hn::IfThenElse(hn::Lt(mag, hn::Set(di, 1 << float_mantissa_bits)),
                              hn::BitCast(di, subnormal), bits);
        const auto special = hn::Set(di, kInfinity ? float_infinity : float_infinity | float_quiet);
        const auto is_special = hn::Gt(mag, hn::Set(di, last_finite << shift));
        bits = hn::Or(bits, hn::IfThenElseZero(is_special, special));
        if constexpr (kInfinity) {
            const auto nan = hn::Gt(mag, hn::Set(di, infinity << shift));
            bits = hn::Or(bits, hn::IfThenElseZero(nan, hn::Set(di, float_quiet)));
        }
        return hn::BitCast(d, hn::Or(bits, sign));
    }

    template <class D>
    static HWY_INLINE hn::Vec<hn::RebindToSigned<D>> encode(D d, hn::Vec<D> v) {
        const hn::RebindToSigned<D> di;
        const hn::RebindToUnsigned<D> du;
        const auto abs = hn::And(hn::BitCast(di, v), hn::Set(di, INT32_MAX));
        const auto sign =
            hn::And(hn::BitCast(di, hn::ShiftRight<31 - magnitude_bits>(hn::BitCast(du, v))),
                    hn::Set(di, 1 << magnitude_bits));
        // Just under half a unit, plus one if the last kept bit is odd: ties go to even.
        const auto odd = hn::And(hn::ShiftRight<shift>(abs), hn::Set(di, 1));
        constexpr int32_t under_half = (1 << (shift - 1)) - 1;
        const auto nearest =
            hn::Add(abs, hn::Set(di, under_half - (rebias << float_mantissa_bits)));
        auto code = hn::ShiftRight<shift>(hn::Add(nearest, odd));
        // Adds a number whose last bit weighs as much as the format's smallest subnormal, so that
        // the adder rounds.
        const auto aligner = hn::Set(di, (rebias + shift + 1) << float_mantissa_bits);
        const auto aligned = hn::Add(hn::BitCast(d, abs), hn::BitCast(d, aligner));
        code = hn::IfThenElse(hn::Lt(abs, hn::Set(di, smallest_normal)),
                              hn::Sub(hn::BitCast(di, aligned), aligner), code);
        code = hn::Min(code, hn::Set(di, overflow));
        if constexpr (kInfinity) {
            constexpr int32_t quiet = infinity | (1 << (kMantissaBits - 1));
            const auto payload = hn::And(abs, hn::Set(di, (1 << float_mantissa_bits) - 1));
            const auto nan = hn::Or(hn::ShiftRight<shift>(payload), hn::Set(di, quiet));
            code = hn::IfThenElse(hn::Gt(abs, hn::Set(di, float_infinity)), nan, code);
        }
        return hn::Or(code, sign);
    }
};

template <class Code, class Formatting>
struct Encoded {
    using Memory = Code;
    using Coding = Formatting;
    template <class D>
    using Tag = hn::Rebind<Code, D>;
    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const Code* p) {
        const hn::RebindToSigned<D> di;
        return Formatting::decode(d, hn::PromoteTo(di, hn::LoadU(Tag<D>(), p)));
    }
    template <class D>
    static HWY_INLINE hn::Vec<Tag<D>> narrow(D d, hn::Vec<D> v) {
        return hn::DemoteTo(Tag<D>(), Formatting::encode(d, v));
    }
};

struct Bfloat16Format {
    template <class D>
    static HWY_INLINE hn::Vec<D> decode(D d, hn::Vec<hn::RebindToSigned<D>> code) {
        return hn::BitCast(d, hn::ShiftLeft<16>(code));
    }
    // The code in the upper halves; the lower halves are undefined.
    template <class D>
    static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_number(D, hn::Vec<D> v) {
        const hn::RebindToUnsigned<D> du;
        const auto bits = hn::BitCast(du, v);
        const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
        return hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
    }
    template <class D>
    static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round(D d, hn::Vec<D> v) {
        const hn::RebindToUnsigned<D> du;
        const auto rounded = round_number(d, v);
        const auto bits = hn::BitCast(du, v);
        const auto quiet = hn::Or(bits, hn::Set(du, float_quiet));
        return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
    }
    template <class D>
    static HWY_INLINE hn::Vec<hn::RebindToSigned<D>> encode(D d, hn::Vec<D> v) {
        return hn::BitCast(hn::RebindToSigned<D>(), hn::ShiftRight<16>(round(d, v)));
    }
};
using Bfloat16 = Encoded<uint16_t, Bfloat16Format>;

// Before AVX2, Highway emulates fp16 without rounding to even and without infinities. Better
// targets have smaller numbers.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

template <class D>
HWY_INLINE hn::Vec<D> half_to_float(D d, hn::Vec<hn::Rebind<uint16_t, D>> code) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), code));
}

struct Float16 {
    using Memory = uint16_t;
    template <class D>
    using Tag = hn::Rebind<uint16_t, D>;
    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const uint16_t* p) {
        return half_to_float(d, hn::LoadU(Tag<D>(), p));
    }
    template <class D>
    static HWY_INLINE hn::Vec<Tag<D>> narrow(D, hn::Vec<D> v) {
        return hn::BitCast(Tag<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), v));
    }
};

#else

using Float16 = Encoded<uint16_t, Format<5, 10, true>>;

#endif

template <class F>
using ToWide = Combine<float, OnlyA, F, F, Wide<float>, false>;
template <class F, bool kDivide>
using FromWide = Combine<float, OnlyA, Wide<float>, F, F, kDivide>;

// For one operand the index of SmallForms is 4, 1 or 9.
template <class F>
ReduceFn small_convert(SmallForms forms, bool stream) {
    if (forms.out_wide) return pick<ToWide<F>>(stream);
    return forms.divide ? pick<FromWide<F, true>>(stream) : pick<FromWide<F, false>>(stream);
}

// Converts blocks to fp32 in the first-level cache, for formats whose conversions dominate the
// cost: fused with every operator and form they would be half of the library's code and build time.
inline constexpr std::size_t block_elements = 1024;

template <class F>
const float* widened(const void* from, bool wide, std::size_t first, std::size_t count,
                     float* buffer) {
    if (wide) return static_cast<const float*>(from) + first;
    run<ToWide<F>>(
        {.dst = buffer, .a = static_cast<const typename F::Memory*>(from) + first, .count = count},
        false);
    return buffer;
}

template <class Operator, class F, int kForms>
struct Blockwise {
    static constexpr bool a_wide = (kForms & 1) != 0;
    static constexpr bool b_wide = (kForms & 2) != 0;
    static constexpr bool out_wide = (kForms & 4) != 0;
    static constexpr bool divide = (kForms & 8) != 0;
    using Wider = Combine<float, Operator, Wide<float>, Wide<float>, Wide<float>, false>;

    static void reduce(const ReduceArgs& args, bool stream) {
        const DefaultMode mode;
        alignas(64) float a[block_elements];
        alignas(64) float b[block_elements];
        constexpr std::size_t size = out_wide ? sizeof(float) : sizeof(typename F::Memory);
        for (std::size_t first = 0; first < args.count; first += block_elements) {
            const std::size_t count = HWY_MIN(block_elements, args.count - first);
            ReduceArgs piece = {.dst = static_cast<std::byte*>(args.dst) + first * size,
                                .a = widened<F>(args.a, a_wide, first, count, a),
                                .b = widened<F>(args.b, b_wide, first, count, b),
                                .count = count,
                                .divisor = args.divisor};
            if constexpr (out_wide) {
                run<Wider>(piece, stream);
            } else {
                run<Wider>({.dst = a, .a = piece.a, .b = piece.b, .count = count}, false);
                piece.a = a;
                run<FromWide<F, divide>>(piece, stream);
            }
        }
    }

    static void plainly(const ReduceArgs& args) { reduce(args, false); }
    static void streamed(const ReduceArgs& args) { reduce(args, true); }
    static ReduceFn find(bool stream) { return stream ? &streamed : &plainly; }
};

template <class Operator, class F, int kForms>
using Form = Combine<float, Operator, std::conditional_t<(kForms & 1) != 0, Wide<float>, F>,
                     std::conditional_t<(kForms & 2) != 0, Wide<float>, F>,
                     std::conditional_t<(kForms & 4) != 0, Wide<float>, F>, (kForms & 8) != 0>;

// The conversions as part of the loop, a cache line of results at a time.
template <class Operator, class F, int kForms>
struct Fused : Form<Operator, F, kForms> {
    using Base = Form<Operator, F, kForms>;
    using Base::Base;
    using typename Base::A;
    using typename Base::B;
    using typename Base::DOut;
    static constexpr bool hot = (kForms & 7) == 0;
    static constexpr std::size_t group = vectors_in_line<DOut>;

    template <class Store>
    HWY_INLINE void several(const A* a, const B* b, const Store& store) const {
        one_by_one(*this, a, b, store);
    }

    static ReduceFn find(bool stream) { return pick<Fused>(stream); }
};

// For two operands: Kernels<Operator, F, index of SmallForms>::find returns the kernel.
template <template <class, class, int> class Kernels, class F, class Operator>
ReduceFn small_operator(int forms, bool stream) {
    switch (forms) {
        case 0:
            return Kernels<Operator, F, 0>::find(stream);
        case 1:
            return Kernels<Operator, F, 1>::find(stream);
        case 2:
            return Kernels<Operator, F, 2>::find(stream);
        case 3:
            return Kernels<Operator, F, 3>::find(stream);
        case 4:
            return Kernels<Operator, F, 4>::find(stream);
        case 5:
            return Kernels<Operator, F, 5>::find(stream);
        case 6:
            return Kernels<Operator, F, 6>::find(stream);
        // Only avg divides, and avg is a sum.
        case 9:
            return Kernels<Sum, F, 9>::find(stream);
        case 10:
            return Kernels<Sum, F, 10>::find(stream);
        case 11:
            return Kernels<Sum, F, 11>::find(stream);
        default:
            return Kernels<Sum, F, 8>::find(stream);
    }
}

template <template <class, class, int> class Kernels, class F>
ReduceFn small_reduce(Op op, SmallForms forms, bool stream) {
    return op == Op::prod ? small_operator<Kernels, F, Product>(forms.index(), stream)
                          : small_operator<Kernels, F, Sum>(forms.index(), stream);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
