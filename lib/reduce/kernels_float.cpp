// float32 and float64: sum, prod, avg.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_float.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/combine-inl.h"
#include "reduce/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

template <class T, class Operator, bool kDivide>
using WideKernel = Combine<T, Operator, Wide<T>, Wide<T>, Wide<T>, kDivide>;

template <class T>
ReduceFn float_kernel(Op op, bool divide, bool stream) {
    if (op == Op::prod) return pick<WideKernel<T, Product, false>>(stream);
    return divide ? pick<WideKernel<T, Sum, true>>(stream)
                  : pick<WideKernel<T, Sum, false>>(stream);
}

ReduceFn float_table(Dtype dtype, Op op, bool divide, bool stream) {
    return dtype == Dtype::float64 ? float_kernel<double>(op, divide, stream)
                                   : float_kernel<float>(op, divide, stream);
}

ReduceFn float_divide_table(Dtype dtype, bool stream) {
    return dtype == Dtype::float64 ? pick<WideKernel<double, OnlyA, true>>(stream)
                                   : pick<WideKernel<float, OnlyA, true>>(stream);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(float_table);
HWY_EXPORT(float_divide_table);

ReduceFn find_float(Dtype dtype, Op op, bool divide, bool stream) {
    return HWY_DYNAMIC_DISPATCH(float_table)(dtype, op, divide, stream);
}

ReduceFn find_float_divide(Dtype dtype, bool stream) {
    return HWY_DYNAMIC_DISPATCH(float_divide_table)(dtype, stream);
}

}  // namespace tutti::kernels
#endif
