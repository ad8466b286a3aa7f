// Counts what the whole process allocates through operator new, the library included; and refuses.
#pragma once

#include <atomic>

inline std::atomic<bool> counting{false};
inline std::atomic<long> allocations{0};
inline std::atomic<long> allocated_bytes{0};  // all that was ever asked for
/// This thread's allocations until one is refused; < 0: none is.
inline thread_local long refused_in = -1;
