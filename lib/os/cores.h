// The cores that ranks may use, for counting how many ranks share one.
#pragma once

#include <sched.h>

#include <bit>
#include <cstdint>
#include <vector>

namespace tutti {

/// A set of cores, as long as its last one. Empty: unknown.
using CoreSet = std::vector<uint64_t>;

/// The cores in this thread's affinity mask.
inline CoreSet usable_cores() {
    cpu_set_t set;
    CoreSet cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &set)) continue;
        cores.resize(core / 64 + 1);
        cores.back() |= uint64_t{1} << core % 64;
    }
    return cores;
}

inline void add_cores(CoreSet& all, const CoreSet& more) {
    if (all.size() < more.size()) all.resize(more.size());
    for (std::size_t i = 0; i < more.size(); ++i) all[i] |= more[i];
}

inline uint32_t count_cores(const CoreSet& cores) {
    uint32_t count = 0;
    for (const uint64_t word : cores) count += static_cast<uint32_t>(std::popcount(word));
    return count;
}

}  // namespace tutti
