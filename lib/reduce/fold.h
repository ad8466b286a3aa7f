// Adds several buffers element by element, in code for hosts and devices: the results equal those
// of this folder's kernels bit by bit. It uses only plain arithmetic and integers, so that a
// device's compiler needs nothing else. The numbers of dtypes and operators are Dtype's and Op's.
#pragma once

#include <cstdint>
#include <cstring>

#ifndef __CUDACC__
#include <string_view>
#endif

#ifdef __CUDACC__
#define TUTTI_EVERYWHERE __host__ __device__ inline
#else
#define TUTTI_EVERYWHERE inline
#endif

namespace tutti::fold {

inline constexpr int most_inputs = 16;

/// out[i] = in[0][i] ⊕ in[1][i] ⊕ …, in the order of the inputs.
struct Args {
    const void* in[most_inputs] = {};
    int32_t inputs = 0;
    int32_t first_partial = 0;  // the first input is in the accumulator's form
    int32_t final = 0;          // the result is rounded, and an average divided; else it is partial
    int32_t divisor = 1;
    void* out = nullptr;
    uint64_t count = 0;
};

#ifndef __CUDACC__
/// fold_kernels.cu in the form that the driver loads; empty if the build had no compiler for it.
std::string_view device_image();
#endif

template <class To, class From>
TUTTI_EVERYWHERE To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

// ---- floats ------------------------------------------------------------------------------------

inline constexpr uint32_t float_infinity = 0x7f800000, float_quiet = 0x00400000;

// The NaN that the host's kernels make of numbers, for example of infinity - infinity. A GPU's adder
// makes one with other bits.
template <class F>
struct Nan;
template <>
struct Nan<float> {
    using Bits = uint32_t;
    static constexpr Bits made = 0xffc00000, quiet = float_quiet;
};
template <>
struct Nan<double> {
    using Bits = uint64_t;
    static constexpr Bits made = 0xfff8000000000000, quiet = 0x0008000000000000;
};

/// The operation's result; if an operand is NaN, the payload of the first one, quiet.
template <class F>
TUTTI_EVERYWHERE F with_nan(F a, F b, F result) {
    using N = Nan<F>;
    if (a != a) return bits_as<F>(bits_as<typename N::Bits>(a) | N::quiet);
    if (b != b) return bits_as<F>(bits_as<typename N::Bits>(b) | N::quiet);
    return result != result ? bits_as<F>(N::made) : result;
}

/// A format of 16 or 8 bits, as small_float-inl.h has it.
template <int kExponentBits, int kMantissaBits, bool kInfinity>
struct Format {
    static constexpr int magnitude_bits = kExponentBits + kMantissaBits;
    static constexpr uint32_t magnitude = (1u << magnitude_bits) - 1;
    static constexpr int shift = 23 - kMantissaBits;
    static constexpr uint32_t rebias = 127 - ((1u << (kExponentBits - 1)) - 1);
    static constexpr uint32_t infinity = magnitude - ((1u << kMantissaBits) - 1);
    static constexpr uint32_t overflow = kInfinity ? infinity : magnitude;
    static constexpr uint32_t smallest_normal = (rebias + 1) << 23;

    static TUTTI_EVERYWHERE float widen(uint32_t code) {
        const uint32_t sign = (code >> magnitude_bits & 1) << 31, number = code & magnitude;
        uint32_t bits = (number << shift) + (rebias << 23);
        if (number < 1u << kMantissaBits)
            bits = bits_as<uint32_t>(bits_as<float>((number << shift) + smallest_normal) -
                                     bits_as<float>(smallest_normal));
        if (kInfinity && number >= infinity) bits |= float_infinity;
        if (number > (kInfinity ? infinity : magnitude - 1)) bits |= float_infinity | float_quiet;
        return bits_as<float>(bits | sign);
    }
    /// To nearest, ties to even.
    static TUTTI_EVERYWHERE uint32_t narrow(float value) {
        const uint32_t bits = bits_as<uint32_t>(value), number = bits & 0x7fffffff;
        const uint32_t sign = (bits >> 31) << magnitude_bits;
        uint32_t code = overflow;
        if (number > float_infinity && kInfinity)
            code = infinity | 1u << (kMantissaBits - 1) | (number & 0x7fffff) >> shift;
        else if (number < smallest_normal)
            // The adder rounds at the weight of the smallest subnormal's last bit.
            code = bits_as<uint32_t>(bits_as<float>(number) + bits_as<float>(aligner)) - aligner;
        else if (number <= float_infinity)
            code = (number - (rebias << 23) + (1u << (shift - 1)) - 1 + (number >> shift & 1)) >>
                   shift;
        return (code < overflow || (kInfinity && number > float_infinity) ? code : overflow) | sign;
    }

private:
    static constexpr uint32_t aligner = (rebias + shift + 1) << 23;
};

struct Bfloat16 {
    static TUTTI_EVERYWHERE float widen(uint32_t code) { return bits_as<float>(code << 16); }
    static TUTTI_EVERYWHERE uint32_t narrow(float value) {
        const uint32_t bits = bits_as<uint32_t>(value);
        if (value != value) return (bits | float_quiet) >> 16;
        return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
};

// ---- types: an element's form in memory, and its form while it is combined ----------------------

/// Integers, under wrapping arithmetic of their unsigned kind.
template <class T, class U>
struct Integer {
    using Memory = T;
    using Wide = T;
    static TUTTI_EVERYWHERE Wide widen(Memory m) { return m; }
    static TUTTI_EVERYWHERE Memory narrow(Wide w) { return w; }
    static TUTTI_EVERYWHERE Wide add(Wide a, Wide b) {
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    }
    static TUTTI_EVERYWHERE Wide multiply(Wide a, Wide b) {
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    }
    static TUTTI_EVERYWHERE Wide divide(Wide a, int32_t by) {
        if constexpr (sizeof(T) == 8) return static_cast<T>(a / static_cast<T>(by));
        return static_cast<T>(static_cast<int64_t>(a) / by);
    }
    static TUTTI_EVERYWHERE Memory better(Memory a, Memory b, bool larger) {
        return (larger ? b > a : b < a) ? b : a;
    }
    static TUTTI_EVERYWHERE Memory of_bits(Memory a, Memory b, int op) {
        const U x = static_cast<U>(a), y = static_cast<U>(b);
        return static_cast<T>(op == 5 ? x & y : op == 6 ? x | y : x ^ y);
    }
};

/// Orders floats by their bits: exact for every format, +0 above -0. A NaN is the result; of two,
/// a's.
template <class S, S kLastNumber>
TUTTI_EVERYWHERE S better_float(S a, S b, bool larger) {
    constexpr S magnitude = static_cast<S>(~uint64_t{0} >> (65 - 8 * sizeof(S)));
    const S order_a = a < 0 ? static_cast<S>(a ^ magnitude) : a;
    const S order_b = b < 0 ? static_cast<S>(b ^ magnitude) : b;
    if ((a & magnitude) > kLastNumber) return a;
    if ((b & magnitude) > kLastNumber) return b;
    return (larger ? order_b > order_a : order_b < order_a) ? b : a;
}

template <class F, class S, S kLastNumber>
struct Float {
    using Memory = F;
    using Wide = F;
    static TUTTI_EVERYWHERE Wide widen(Memory m) { return m; }
    static TUTTI_EVERYWHERE Memory narrow(Wide w) { return w; }
    static TUTTI_EVERYWHERE Wide add(Wide a, Wide b) { return with_nan<F>(a, b, a + b); }
    static TUTTI_EVERYWHERE Wide multiply(Wide a, Wide b) { return with_nan<F>(a, b, a * b); }
    static TUTTI_EVERYWHERE Wide divide(Wide a, int32_t by) {
        return with_nan<F>(a, F(1), a / static_cast<F>(by));
    }
    static TUTTI_EVERYWHERE Memory better(Memory a, Memory b, bool larger) {
        return bits_as<F>(better_float<S, kLastNumber>(bits_as<S>(a), bits_as<S>(b), larger));
    }
    static TUTTI_EVERYWHERE Memory of_bits(Memory a, Memory, int) { return a; }
};

template <class U, class S, S kLastNumber, class Coding>
struct Small {
    using Memory = U;
    using Wide = float;
    using Single = Float<float, int32_t, 0x7f800000>;
    static TUTTI_EVERYWHERE Wide widen(Memory m) { return Coding::widen(m); }
    static TUTTI_EVERYWHERE Memory narrow(Wide w) { return static_cast<U>(Coding::narrow(w)); }
    static TUTTI_EVERYWHERE Wide add(Wide a, Wide b) { return Single::add(a, b); }
    static TUTTI_EVERYWHERE Wide multiply(Wide a, Wide b) { return Single::multiply(a, b); }
    static TUTTI_EVERYWHERE Wide divide(Wide a, int32_t by) { return Single::divide(a, by); }
    static TUTTI_EVERYWHERE Memory better(Memory a, Memory b, bool larger) {
        return static_cast<U>(
            better_float<S, kLastNumber>(static_cast<S>(a), static_cast<S>(b), larger));
    }
    static TUTTI_EVERYWHERE Memory of_bits(Memory a, Memory, int) { return a; }
};

// ---- one element -------------------------------------------------------------------------------

enum : int { sum = 0, max = 1, min = 2, prod = 3, avg = 4, band = 5, bor = 6, bxor = 7 };

TUTTI_EVERYWHERE constexpr bool accumulates(int op) {
    return op == sum || op == prod || op == avg;
}

template <class T, int kOp>
TUTTI_EVERYWHERE void element(const Args& args, uint64_t i) {
    using Memory = typename T::Memory;
    using Wide = typename T::Wide;
    const auto raw = [&](int input) { return static_cast<const Memory*>(args.in[input])[i]; };
    if constexpr (accumulates(kOp)) {
        Wide value =
            args.first_partial ? static_cast<const Wide*>(args.in[0])[i] : T::widen(raw(0));
        for (int k = 1; k < args.inputs; ++k) {
            const Wide next = T::widen(raw(k));
            value = kOp == prod ? T::multiply(value, next) : T::add(value, next);
        }
        if (!args.final) {
            static_cast<Wide*>(args.out)[i] = value;
            return;
        }
        if constexpr (kOp == avg) value = T::divide(value, args.divisor);
        static_cast<Memory*>(args.out)[i] = T::narrow(value);
    } else {
        Memory value = raw(0);
        for (int k = 1; k < args.inputs; ++k) {
            if constexpr (kOp == max || kOp == min)
                value = T::better(value, raw(k), kOp == max);
            else
                value = T::of_bits(value, raw(k), kOp);
        }
        static_cast<Memory*>(args.out)[i] = value;
    }
}

// ---- every type and operator -------------------------------------------------------------------

// X(Dtype's name, its number, how it is combined)
#define TUTTI_FOLD_INTEGERS(X)                  \
    X(int8, 0, (Integer<int8_t, uint8_t>))      \
    X(uint8, 1, (Integer<uint8_t, uint8_t>))    \
    X(int16, 2, (Integer<int16_t, uint16_t>))   \
    X(uint16, 3, (Integer<uint16_t, uint16_t>)) \
    X(int32, 4, (Integer<int32_t, uint32_t>))   \
    X(uint32, 5, (Integer<uint32_t, uint32_t>)) \
    X(int64, 6, (Integer<int64_t, uint64_t>))   \
    X(uint64, 7, (Integer<uint64_t, uint64_t>))
#define TUTTI_FOLD_FLOATS(X)                                                \
    X(float16, 8, (Small<uint16_t, int16_t, 0x7c00, Format<5, 10, true>>))  \
    X(bfloat16, 9, (Small<uint16_t, int16_t, 0x7f80, Bfloat16>))            \
    X(float32, 10, (Float<float, int32_t, 0x7f800000>))                     \
    X(float64, 11, (Float<double, int64_t, 0x7ff0000000000000>))            \
    X(float8_e4m3, 12, (Small<uint8_t, int8_t, 0x7e, Format<4, 3, false>>)) \
    X(float8_e5m2, 13, (Small<uint8_t, int8_t, 0x7c, Format<5, 2, true>>))

// Without the parentheses that kept the commas together.
template <class T>
struct Unwrapped;
template <class T>
struct Unwrapped<void(T)> {
    using Type = T;
};

}  // namespace tutti::fold
