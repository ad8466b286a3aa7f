// Which instruction sets the kernels are compiled for, and a way to choose between them.
#pragma once

#include <string_view>
#include <vector>

// Each set costs a compilation of every kernel. SSSE3 is left out because it adds nothing here: no
// x86-64 server without SSE4 is left to care about. AVX3_DL is AVX3 with instructions (VBMI, VNNI,
// AES) that only 8-bit floats use: a source that defines HWY_WANT_AVX3_DL has it too. Must come
// before any Highway header. A build may disable more (tools/check does).
#ifndef HWY_DISABLED_TARGETS
#ifdef HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS HWY_SSSE3
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#endif

namespace tutti {

/// The sets that are compiled in and that this CPU has, best first; the last is the fallback.
std::vector<std::string_view> simd_targets();

/// For tests and benchmarks: kernels looked up from now on, by any thread, are of that set, or of
/// the next best that they are compiled for. "" goes back to the best. False if the name is none of
/// simd_targets().
bool select_simd_target(std::string_view name);

}  // namespace tutti
