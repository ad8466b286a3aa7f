// All instruction sets that any kernel is compiled for.
#define HWY_WANT_AVX3_DL
#include "reduce/targets.h"
//
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/targets.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include "reduce/reduce.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

const char* target_name() {
    return hwy::TargetName(HWY_TARGET);
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {

HWY_EXPORT(target_name);

std::string_view simd_target() {
    return HWY_DYNAMIC_DISPATCH(target_name)();
}

namespace {

// The targets that are compiled in and supported here; the static target always is.
int64_t usable_targets() {
    return (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
}

// The targets as a list. The best has the lowest bit and is first.
std::vector<int64_t> one_by_one(int64_t targets) {
    std::vector<int64_t> list;
    for (int64_t left = targets; left != 0; left &= left - 1) list.push_back(left & -left);
    return list;
}

}  // namespace

std::vector<std::string_view> simd_targets() {
    std::vector<std::string_view> names;
    for (const int64_t target : one_by_one(usable_targets()))
        names.emplace_back(hwy::TargetName(target));
    return names;
}

bool select_simd_target(std::string_view name) {
    for (const int64_t target : one_by_one(usable_targets())) {
        if (!name.empty() && name != hwy::TargetName(target)) continue;
        const int64_t this_and_worse = -target;
        hwy::GetChosenTarget().Update(usable_targets() & this_and_worse);
        return true;
    }
    return false;
}

}  // namespace tutti
#endif
