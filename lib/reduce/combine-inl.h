// Floating-point kernels: read two operands in their forms, combine them wide, write one form.
// Included once per instruction set, hence the toggled guard.
#if defined(TUTTI_REDUCE_COMBINE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_REDUCE_COMBINE_INL_H
#undef TUTTI_REDUCE_COMBINE_INL_H
#else
#define TUTTI_REDUCE_COMBINE_INL_H
#endif

#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

// A form in memory: how it becomes a vector of the wide type and back.
template <class T>
struct Wide {
    using Memory = T;
    template <class D>
    using Tag = D;
    template <class D>
    static HWY_INLINE hn::Vec<D> load(D d, const T* p) {
        return hn::LoadU(d, p);
    }
    template <class D>
    static HWY_INLINE hn::Vec<D> narrow(D, hn::Vec<D> v) {
        return v;
    }
};

// Hardware keeps the payload of the first of two NaN operands, but a compiler may swap the operands
// of + and *. These fix the order, or pass the same NaN twice, so that the result is the same in
// every loop on every rank.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
#define TUTTI_IN_ORDER(name, instruction)                                              \
    template <class V>                                                                 \
    HWY_INLINE V name(V a, V b) {                                                      \
        __asm__("v" instruction " %2, %1, %0" : "=v"(a.raw) : "v"(a.raw), "v"(b.raw)); \
        return a;                                                                      \
    }
#elif HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TUTTI_IN_ORDER(name, instruction)                          \
    template <class V>                                             \
    HWY_INLINE V name(V a, V b) {                                  \
        __asm__(instruction " %1, %0" : "+x"(a.raw) : "x"(b.raw)); \
        return a;                                                  \
    }
#endif
#ifdef TUTTI_IN_ORDER
TUTTI_IN_ORDER(add_floats, "addps")
TUTTI_IN_ORDER(add_doubles, "addpd")
TUTTI_IN_ORDER(multiply_floats, "mulps")
TUTTI_IN_ORDER(multiply_doubles, "mulpd")
#undef TUTTI_IN_ORDER

template <class V>
inline constexpr bool of_floats = std::is_same_v<hn::TFromV<V>, float>;

template <class V>
HWY_INLINE V add_in_order(V a, V b) {
    if constexpr (of_floats<V>) {
        return add_floats(a, b);
    } else {
        return add_doubles(a, b);
    }
}
template <class V>
HWY_INLINE V multiply_in_order(V a, V b) {
    if constexpr (of_floats<V>) {
        return multiply_floats(a, b);
    } else {
        return multiply_doubles(a, b);
    }
}
#else
template <class V>
HWY_INLINE V same_nan(V a, V b) {
    return hn::IfThenElse(hn::IsNaN(a), a, b);
}
// The NaN of infinity - infinity is negative on x86 and positive on ARM. Here it is x86's, so that
// ranks on different processors, and fold.h, get the same bits.
template <class V>
HWY_INLINE V with_made_nan(V operand, V result) {
    const auto made = hn::AndNot(hn::IsNaN(operand), hn::IsNaN(result));
    return hn::Or(result, hn::IfThenElseZero(made, hn::SignBit(hn::DFromV<V>())));
}
template <class V>
HWY_INLINE V add_in_order(V a, V b) {
    const V second = same_nan(a, b);
    return with_made_nan(second, hn::Add(a, second));
}
template <class V>
HWY_INLINE V multiply_in_order(V a, V b) {
    const V second = same_nan(a, b);
    return with_made_nan(second, hn::Mul(a, second));
}
#endif

struct Sum {
    template <class V>
    static HWY_INLINE V apply(V a, V b) {
        return add_in_order(a, b);
    }
};

struct Product {
    template <class V>
    static HWY_INLINE V apply(V a, V b) {
        return multiply_in_order(a, b);
    }
};

struct OnlyA {};

// The division of an average; none if kDivide is false. For a power of two, multiplying by the
// reciprocal gives the same bits, subnormals included, in a fraction of the time.
template <class W, bool kDivide>
class Division {
public:
    explicit Division(int32_t divisor)
        : divisor_(static_cast<W>(divisor)),
          reciprocal_((divisor & (divisor - 1)) == 0 ? 1 / divisor_ : 0) {}

    template <class D>
    HWY_INLINE hn::Vec<D> apply(D d, hn::Vec<D> v) const {
        if constexpr (!kDivide) return v;
        return reciprocal_ != 0 ? hn::Mul(v, hn::Set(d, reciprocal_))
                                : hn::Div(v, hn::Set(d, divisor_));
    }

private:
    W divisor_, reciprocal_;
};

// W: the type of the computation. InA, InB, ToOut: the forms in memory.
template <class W, class Operator, class InA, class InB, class ToOut, bool kDivide>
struct Combine {
    using D = hn::ScalableTag<W>;
    using A = typename InA::Memory;
    using B = typename InB::Memory;
    using Out = typename ToOut::Memory;
    using DOut = typename ToOut::template Tag<D>;
    static constexpr bool unary = std::is_same_v<Operator, OnlyA>;
    static constexpr bool hot = !kDivide && std::is_same_v<InA, Wide<W>> &&
                                std::is_same_v<InB, Wide<W>> && std::is_same_v<ToOut, Wide<W>>;

    explicit Combine(const ReduceArgs& args) : division_(args.divisor) {}

    HWY_INLINE hn::Vec<DOut> operator()(const A* a, const B* b) const {
        const D d;
        auto value = InA::load(d, a);
        if constexpr (!unary) value = Operator::apply(value, InB::load(d, b));
        return ToOut::narrow(d, division_.apply(d, value));
    }

    Division<W, kDivide> division_;
};

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
