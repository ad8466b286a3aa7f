// Whether this build has a sanitizer: every instruction costs ten then, and what only repeats
// itself is done less often.
#pragma once

namespace tutti::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

}  // namespace tutti::test
