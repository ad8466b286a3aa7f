// A network's limits and speed, as a rank's transport reports them.
#pragma once

#include <cstddef>

namespace tutti {

/// Input to algorithm selection. Adapters may differ between machines, but all ranks must choose
/// alike: every rank uses the worst value that any rank reports.
struct LinkAttributes {
    std::size_t max_message_bytes = 0;
    double latency_us = 0;     // one small message, one way
    double bandwidth_gbs = 0;  // one direction
    // The library uses the kernel's streams between hosts, and within a host too: it costs as much
    // as tcp.
    bool sockets = false, sockets_within = false;
    bool lacking = false;  // this rank cannot use it, so no rank does
};

}  // namespace tutti
