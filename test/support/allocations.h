// Counts what the whole process allocates through operator new, the library included.
#pragma once

#include <atomic>

inline std::atomic<bool> counting{false};
inline std::atomic<long> allocations{0};
inline std::atomic<long> allocated_bytes{0};  // all that was ever asked for
