// The network of the simulator's tests: what a message costs in it can be worked out on paper.
#pragma once

#include "proof/network.h"

namespace tutti::sim {

inline constexpr double latency_us = 10, overhead_us = 1, us_per_byte = 1e-3,
                        reduce_us_per_byte = 1e-4;

// One rank a host, one switch: all that travels passes two links of 1 GB/s.
inline Network uniform(Rank ranks) {
    Network n;
    n.hosts = ranks;
    n.wire = {1e6 / us_per_byte, latency_us, overhead_us};
    n.reduce_bytes_per_s = 1e6 / reduce_us_per_byte;
    return n;
}

// One message from processor to processor.
inline double hop_us(double bytes) {
    return 2 * overhead_us + latency_us + bytes * us_per_byte;
}

}  // namespace tutti::sim
