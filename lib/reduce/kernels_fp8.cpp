// float8_e4m3 and float8_e5m2: sum, prod, avg in fp32, and the conversions.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_fp8.cpp"
#include <hwy/foreach_target.h>
//
#include "reduce/fp8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

ReduceFn fp8_table(Dtype dtype, Op op, SmallForms forms, bool stream) {
    return dtype == Dtype::float8_e4m3 ? small_reduce<Fp8, E4m3>(op, forms, stream)
                                       : small_reduce<Fp8, E5m2>(op, forms, stream);
}

ReduceFn fp8_convert_table(Dtype dtype, SmallForms forms, bool stream) {
    return dtype == Dtype::float8_e4m3 ? fp8_convert<E4m3>(forms, stream)
                                       : fp8_convert<E5m2>(forms, stream);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(fp8_table);
HWY_EXPORT(fp8_convert_table);

ReduceFn find_fp8(Dtype dtype, Op op, SmallForms forms, bool stream) {
    return HWY_DYNAMIC_DISPATCH(fp8_table)(dtype, op, forms, stream);
}

ReduceFn find_fp8_convert(Dtype dtype, SmallForms forms, bool stream) {
    return HWY_DYNAMIC_DISPATCH(fp8_convert_table)(dtype, forms, stream);
}

}  // namespace tutti::kernels
#endif
