// Averages of integers: the wrapped sum divided by the number of contributions, toward zero.
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

// There is no vector division of integers, but a float with twice the bits gives the exact result:
// a rounded x / n only reaches the next integer if x needs more bits than the mantissa has.
template <class T>
using Quotient = std::conditional_t<sizeof(T) == 4, double, float>;

template <class T>
HWY_INLINE hn::Vec<hn::Rebind<T, hn::ScalableTag<Quotient<T>>>> divide_lanes(
    hn::Vec<hn::Rebind<T, hn::ScalableTag<Quotient<T>>>> sum, Quotient<T> divisor) {
    const hn::ScalableTag<Quotient<T>> d;
    const hn::Rebind<T, decltype(d)> dt;
    const hn::Rebind<int32_t, decltype(d)> di;
    const auto by = hn::Set(d, divisor);
    if constexpr (std::is_same_v<T, int32_t>) {
        return hn::DemoteTo(di, hn::Div(hn::PromoteTo(d, sum), by));
    } else if constexpr (std::is_same_v<T, uint32_t>) {
        // 2^52 + x has x in its low bits.
        const hn::RebindToUnsigned<decltype(d)> du;
        const auto offset = hn::Set(d, 4503599627370496.0);
        const auto bits = hn::Or(hn::PromoteTo(du, sum), hn::BitCast(du, offset));
        const auto quotient = hn::Trunc(hn::Div(hn::Sub(hn::BitCast(d, bits), offset), by));
        return hn::TruncateTo(dt, hn::BitCast(du, hn::Add(quotient, offset)));
    } else {
        const auto quotient = hn::Div(hn::ConvertTo(d, hn::PromoteTo(di, sum)), by);
        return hn::DemoteTo(dt, hn::ConvertTo(di, quotient));
    }
}

template <class T, bool kUnary>
struct Average {
    using A = T;
    using B = T;
    using Out = T;
    using DOut = hn::Rebind<T, hn::ScalableTag<Quotient<T>>>;
    static constexpr bool unary = kUnary;
    static constexpr bool hot = false;

    explicit Average(const ReduceArgs& args) : divisor_(static_cast<Quotient<T>>(args.divisor)) {}

    HWY_INLINE hn::Vec<DOut> operator()(const T* a, const T* b) const {
        const DOut d;
        auto sum = hn::LoadU(d, a);
        if constexpr (!kUnary) sum = hn::Add(sum, hn::LoadU(d, b));
        return divide_lanes<T>(sum, divisor_);
    }

    Quotient<T> divisor_;
};

// 64 bits: no float has the bits, so each lane is divided by itself.
template <class T, bool kUnary>
struct LongAverage {
    using A = T;
    using B = T;
    using Out = T;
    using DOut = hn::ScalableTag<T>;
    static constexpr bool unary = kUnary;
    static constexpr bool hot = false;

    explicit LongAverage(const ReduceArgs& args) : divisor_(static_cast<T>(args.divisor)) {}

    HWY_INLINE hn::Vec<DOut> operator()(const T* a, const T* b) const {
        const DOut d;
        auto sum = hn::LoadU(d, a);
        if constexpr (!kUnary) sum = hn::Add(sum, hn::LoadU(d, b));
        alignas(64) T lanes[hn::MaxLanes(DOut())];
        hn::Store(sum, d, lanes);
        for (std::size_t i = 0; i < hn::Lanes(d); ++i)
            lanes[i] = static_cast<T>(lanes[i] / divisor_);
        return hn::Load(d, lanes);
    }

    T divisor_;
};

template <class T>
ReduceFn average_kernel(bool one_operand, bool stream) {
    if constexpr (sizeof(T) == 8) {
        return one_operand ? pick<LongAverage<T, true>>(stream)
                           : pick<LongAverage<T, false>>(stream);
    } else {
        return one_operand ? pick<Average<T, true>>(stream) : pick<Average<T, false>>(stream);
    }
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
