// Integers: sum, prod, max, min, band, bor, bxor. Sums and products wrap.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_int.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/kernels.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

struct WrapSum {
    template <class D, class V>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::Add(a, b);
    }
};

struct WrapProduct {
    template <class D, class V>
    static HWY_INLINE V apply(D d, V a, V b) {
        if constexpr (sizeof(hn::TFromD<D>) == 1 && hn::MaxLanes(D()) > 1) {
            // No instruction set multiplies bytes: multiplies the even and the odd bytes in 16-bit
            // lanes.
            const hn::Repartition<uint16_t, D> d16;
            const auto a16 = hn::BitCast(d16, a);
            const auto b16 = hn::BitCast(d16, b);
            const auto even = hn::And(hn::Mul(a16, b16), hn::Set(d16, 0xff));
            const auto odd = hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16));
            return hn::BitCast(d, hn::Or(even, hn::ShiftLeft<8>(odd)));
        } else {
            return hn::Mul(a, b);
        }
    }
};

struct Larger {
    template <class D, class V>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::Max(a, b);
    }
};

struct Smaller {
    template <class D, class V>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::Min(a, b);
    }
};

struct BitAnd {
    template <class D, class V>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::And(a, b);
    }
};

struct BitOr {
    template <class D, class V>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::Or(a, b);
    }
};

struct BitXor {
    template <class D, class V>
    static HWY_INLINE V apply(D, V a, V b) {
        return hn::Xor(a, b);
    }
};

template <class T, class Operator>
struct Integers {
    using A = T;
    using B = T;
    using Out = T;
    using DOut = hn::ScalableTag<T>;
    static constexpr bool unary = false;
    static constexpr bool hot = false;
    static constexpr bool integers = true;

    explicit Integers(const ReduceArgs&) {}

    HWY_INLINE hn::Vec<DOut> operator()(const T* a, const T* b) const {
        const DOut d;
        return Operator::apply(d, hn::LoadU(d, a), hn::LoadU(d, b));
    }
};

// Bitwise operators do not depend on the element size: one kernel works on bytes.
template <class Operator, std::size_t kSize, bool kStream>
void bitwise(const ReduceArgs& args) {
    ReduceArgs bytes = args;
    bytes.count *= kSize;
    run<Integers<uint8_t, Operator>>(bytes, kStream);
}

template <class Operator, std::size_t kSize>
ReduceFn pick_bitwise(bool stream) {
    return stream ? &bitwise<Operator, kSize, true> : &bitwise<Operator, kSize, false>;
}

// T unsigned: wrapping gives the same bits for signed numbers.
template <class T>
ReduceFn unsigned_kernel(Op op, bool stream) {
    switch (op) {
        case Op::prod:
            return pick<Integers<T, WrapProduct>>(stream);
        case Op::band:
            return pick_bitwise<BitAnd, sizeof(T)>(stream);
        case Op::bor:
            return pick_bitwise<BitOr, sizeof(T)>(stream);
        case Op::bxor:
            return pick_bitwise<BitXor, sizeof(T)>(stream);
        default:
            return pick<Integers<T, WrapSum>>(stream);
    }
}

template <class T>
ReduceFn int_kernel(Op op, bool stream) {
    if (op == Op::max) return pick<Integers<T, Larger>>(stream);
    if (op == Op::min) return pick<Integers<T, Smaller>>(stream);
    return unsigned_kernel<std::make_unsigned_t<T>>(op, stream);
}

ReduceFn int_table(Dtype dtype, Op op, bool stream) {
    switch (dtype) {
        case Dtype::int8:
            return int_kernel<int8_t>(op, stream);
        case Dtype::int16:
            return int_kernel<int16_t>(op, stream);
        case Dtype::uint16:
            return int_kernel<uint16_t>(op, stream);
        case Dtype::int32:
            return int_kernel<int32_t>(op, stream);
        case Dtype::uint32:
            return int_kernel<uint32_t>(op, stream);
        case Dtype::int64:
            return int_kernel<int64_t>(op, stream);
        case Dtype::uint64:
            return int_kernel<uint64_t>(op, stream);
        default:
            return int_kernel<uint8_t>(op, stream);
    }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(int_table);

ReduceFn find_int(Dtype dtype, Op op, bool stream) {
    return HWY_DYNAMIC_DISPATCH(int_table)(dtype, op, stream);
}

}  // namespace tutti::kernels
#endif
