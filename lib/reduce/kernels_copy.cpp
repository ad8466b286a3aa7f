// Copies.
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_copy.cpp"
#include <hwy/foreach_target.h>
//
#include <array>
#include <cassert>
#include <utility>

#include "reduce/kernels.h"
#include "reduce/loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

struct CopyBytes {
    using A = uint8_t;
    using B = uint8_t;
    using Out = uint8_t;
    using DOut = hn::ScalableTag<uint8_t>;
    static constexpr bool unary = true;
    static constexpr bool hot = true;

    explicit CopyBytes(const ReduceArgs&) {}

    HWY_INLINE hn::Vec<DOut> operator()(const uint8_t* a, const uint8_t*) const {
        return hn::LoadU(DOut(), a);
    }
};

template <std::size_t kElementBytes, bool kStream>
void copy_elements(const ReduceArgs& args) {
    ReduceArgs in_bytes = args;
    in_bytes.count = args.count * kElementBytes;
    if constexpr (kStream) {
        run<CopyBytes>(in_bytes, true);
    } else if (args.dst != args.a && args.count != 0) {
        std::memcpy(args.dst, args.a, in_bytes.count);
    }
}

template <bool kStream, std::size_t... kIndex>
ReduceFn copy_of(std::size_t element_bytes, std::index_sequence<kIndex...>) {
    static constexpr ReduceFn table[] = {&copy_elements<kIndex + 1, kStream>...};
    return table[element_bytes - 1];
}

ReduceFn copy_table(std::size_t element_bytes, bool stream) {
    const auto sizes = std::make_index_sequence<max_mover_bytes>();
    return stream ? copy_of<true>(element_bytes, sizes) : copy_of<false>(element_bytes, sizes);
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti::kernels {

HWY_EXPORT(copy_table);

ReduceFn find_copy(std::size_t element_bytes, bool stream) {
    assert(element_bytes >= 1 && element_bytes <= max_mover_bytes);
    return HWY_DYNAMIC_DISPATCH(copy_table)(element_bytes, stream);
}

}  // namespace tutti::kernels
#endif
