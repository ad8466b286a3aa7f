// The instruction sets that the kernels are compiled for, and a way to choose between them.
#pragma once

#include <string_view>
#include <vector>

// Each set costs a compilation of every kernel. SSSE3 is left out because it adds nothing here: no
// current x86-64 server lacks SSE4. AVX3_DL is AVX3 with instructions (VBMI, VNNI, AES) that only
// 8-bit floats use: a source that defines HWY_WANT_AVX3_DL has it too. On ARM all kernels are
// NEON's: SVE's vectors have no size that the compiler knows, but kernels keep vectors in arrays.
// Must be included before any Highway header. A build may disable more (tools/check does).
#ifndef HWY_DISABLED_TARGETS
#ifdef __aarch64__
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#elif defined(HWY_WANT_AVX3_DL)
#define HWY_DISABLED_TARGETS HWY_SSSE3
#else
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#endif

namespace tutti {

/// The sets that are compiled in and that this CPU supports, best first; the last is the fallback.
std::vector<std::string_view> simd_targets();

/// For tests and benchmarks: from now on, kernels looked up by any thread are those of that set, or
/// of the next best that they are compiled for. "": the best again. False if simd_targets() lacks
/// the name.
bool select_simd_target(std::string_view name);

}  // namespace tutti
