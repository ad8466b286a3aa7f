// What a network says of itself.
#pragma once

#include <cstddef>

namespace tutti {

/// What choices of algorithms depend on. Adapters differ between machines, choices must not: all
/// ranks go by the worst that any of them states.
struct LinkAttributes {
    std::size_t max_message_bytes = 0;
    double latency_us = 0;     // one small message, one way
    double bandwidth_gbs = 0;  // one direction
    // A library's that goes through the kernel's streams, between hosts, and within one too: it
    // costs what tcp does.
    bool sockets = false, sockets_within = false;
    bool lacking = false;  // this rank cannot use it: nobody does
};

}  // namespace tutti
