// Averages of integers: the wrapped sum divided by the number of contributions, toward zero.
#include <bit>
#include <limits>
#include <type_traits>

#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_average.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/kernels.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

// Division of integers by a divisor that is known before the loop: the upper half of a product, and
// two shifts. Correct for all numerators and divisors. Source: Granlund & Montgomery, Division by
// Invariant Integers using Multiplication, PLDI 1994, figure 4.1.
template <class U>
struct Divider {
    U multiplier = 0;
    // These initial shifts are for a divisor that U cannot hold: they make every quotient 0.
    int first = 1;
    int second = 8 * sizeof(U) - 1;

    explicit Divider(int32_t divisor) {
        if (static_cast<uint64_t>(divisor) > std::numeric_limits<U>::max()) return;
        const auto by = static_cast<uint32_t>(divisor);
        const int bits = std::bit_width(by - 1);
        const auto rest = ((uint64_t{1} << bits) - by);
        __extension__ typedef unsigned __int128 Twice;
        multiplier = static_cast<U>((static_cast<Twice>(rest) << (8 * sizeof(U))) / by + 1);
        first = HWY_MIN(bits, 1);
        second = HWY_MAX(bits - 1, 0);
    }

    template <class D>
    HWY_INLINE hn::Vec<D> divide(D d, hn::Vec<D> v) const {
        const auto product = upper_half(d, v, hn::Set(d, multiplier));
        const auto rest = hn::ShiftRightSame(hn::Sub(v, product), first);
        return hn::ShiftRightSame(hn::Add(product, rest), second);
    }

private:
    template <class D>
    static HWY_INLINE hn::Vec<D> upper_half(D d, hn::Vec<D> a, hn::Vec<D> b) {
        if constexpr (sizeof(U) == 2) {
            return hn::MulHigh(a, b);
        } else if constexpr (sizeof(U) == 4) {
            const hn::Repartition<uint64_t, D> d64;
            const auto odd = hn::ShiftRight<32>(hn::BitCast(d64, a));
            return hn::OddEven(hn::BitCast(d, hn::MulEven(hn::BitCast(d, odd), b)),
                               hn::BitCast(d, hn::ShiftRight<32>(hn::MulEven(a, b))));
        } else {
            const auto low = hn::Set(d, 0xffffffff);
            const auto a1 = hn::ShiftRight<32>(a), b1 = hn::ShiftRight<32>(b);
            const auto middle = hn::Add(times(d, a1, b), hn::ShiftRight<32>(times(d, a, b)));
            const auto carried = hn::Add(times(d, a, b1), hn::And(middle, low));
            return hn::Add(hn::Add(times(d, a1, b1), hn::ShiftRight<32>(middle)),
                           hn::ShiftRight<32>(carried));
        }
    }
    // Multiplies the lower halves of lanes.
    template <class D>
    static HWY_INLINE hn::Vec<D> times(D, hn::Vec<D> a, hn::Vec<D> b) {
        const hn::Repartition<uint32_t, D> d32;
        return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
    }
};

template <class T, bool kUnary>
struct Average {
    using A = T;
    using B = T;
    using Out = T;
    using DOut = hn::ScalableTag<T>;
    static constexpr bool unary = kUnary;
    static constexpr bool hot = false;
    static constexpr bool integers = true;

    explicit Average(const ReduceArgs& args) : divider_(args.divisor) {}

    HWY_INLINE hn::Vec<DOut> operator()(const T* a, const T* b) const {
        const DOut d;
        auto sum = hn::LoadU(d, a);
        if constexpr (!kUnary) sum = hn::Add(sum, hn::LoadU(d, b));
        if constexpr (std::is_signed_v<T>) {
            // Divides the magnitude, to round toward zero.
            const auto sign = hn::VecFromMask(d, hn::Lt(sum, hn::Zero(d)));
            const auto magnitude = hn::BitCast(Magnitudes(), negated_if(sign, sum));
            return negated_if(sign, hn::BitCast(d, divide(magnitude)));
        } else {
            return divide(sum);
        }
    }

private:
    using Magnitudes = hn::RebindToUnsigned<DOut>;
    // Bytes are divided in 16-bit lanes, even and odd ones separately.
    using Wider = std::conditional_t<sizeof(T) == 1, uint16_t, std::make_unsigned_t<T>>;

    static HWY_INLINE hn::Vec<DOut> negated_if(hn::Vec<DOut> sign, hn::Vec<DOut> v) {
        return hn::Sub(hn::Xor(v, sign), sign);
    }

    HWY_INLINE hn::Vec<Magnitudes> divide(hn::Vec<Magnitudes> v) const {
        const hn::Repartition<Wider, DOut> dw;
        if constexpr (sizeof(T) == 1) {
            const auto pairs = hn::BitCast(dw, v);
            const auto even = divider_.divide(dw, hn::And(pairs, hn::Set(dw, 0xff)));
            const auto odd = divider_.divide(dw, hn::ShiftRight<8>(pairs));
            return hn::BitCast(Magnitudes(), hn::Or(even, hn::ShiftLeft<8>(odd)));
        } else {
            return divider_.divide(dw, v);
        }
    }

    Divider<Wider> divider_;
};

#else

template <class T, bool kUnary>
struct Average {
    using A = T;
    using B = T;
    using Out = T;
    using DOut = hn::ScalableTag<T>;
    static constexpr bool unary = kUnary;
    static constexpr bool hot = false;
    static constexpr bool integers = true;

    explicit Average(const ReduceArgs& args) : divisor_(args.divisor) {}

    HWY_INLINE hn::Vec<DOut> operator()(const T* a, const T* b) const {
        const DOut d;
        auto sum = hn::LoadU(d, a);
        if constexpr (!kUnary) sum = hn::Add(sum, hn::LoadU(d, b));
        using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
        const auto quotient = static_cast<Wide>(hn::GetLane(sum)) / static_cast<Wide>(divisor_);
        return hn::Set(d, static_cast<T>(quotient));
    }

    int32_t divisor_;
};

#endif

template <class T>
ReduceFn average_kernel(bool one_operand, bool stream) {
    return one_operand ? pick<Average<T, true>>(stream) : pick<Average<T, false>>(stream);
}

ReduceFn average_table(Dtype dtype, bool one_operand, bool stream) {
    switch (dtype) {
        case Dtype::int8:
            return average_kernel<int8_t>(one_operand, stream);
        case Dtype::int16:
            return average_kernel<int16_t>(one_operand, stream);
        case Dtype::uint16:
            return average_kernel<uint16_t>(one_operand, stream);
        case Dtype::int32:
            return average_kernel<int32_t>(one_operand, stream);
        case Dtype::uint32:
            return average_kernel<uint32_t>(one_operand, stream);
        case Dtype::int64:
            return average_kernel<int64_t>(one_operand, stream);
        case Dtype::uint64:
            return average_kernel<uint64_t>(one_operand, stream);
        default:
            return average_kernel<uint8_t>(one_operand, stream);
    }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(average_table);

ReduceFn find_int_average(Dtype dtype, bool one_operand, bool stream) {
    return HWY_DYNAMIC_DISPATCH(average_table)(dtype, one_operand, stream);
}

}  // namespace tutti::kernels
#endif
