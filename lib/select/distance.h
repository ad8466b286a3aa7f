// Networks whose hosts are far apart: the cost of the distance in the cost model, and the message
// size at which lanes do not stall while their messages travel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "select/cost.h"

namespace tutti {

/// From this round trip on hosts count as far apart; the built-in constants were measured for
/// nearer ones.
inline constexpr double far_round_trip_us = 1000;

/// Half of a measured round trip, rounded so coarsely that a job gets the same value on each start:
/// 0 if the hosts are not far apart, else half of the nearest of 1, 4, 16, 64, … ms.
double coarse_latency_us(double round_trip_us);

/// The constants of a wire on which each message travels at least so long. measured: they are from
/// a file or from this job; else the rate is assumed to be 10 Gbit/s at most, and less with every
/// connection that shares a link.
Constants over_distance(Constants constants, double latency_us, bool measured);

/// The bytes in flight between two hosts when the wire is busy.
double bytes_on_the_way(const Constants& constants);

/// The lanes of a choice, and the bounds of its messages.
struct MessageWindow {
    uint32_t lanes = 1;
    uint32_t credits = 1;   // messages of a lane that may be in flight
    bool streams = false;   // no lane waits for a message before it sends the next
    std::size_t least = 0;  // least bytes of a message
    std::size_t most = 0;   // most bytes of a message: the limit of memory
};
/// The bytes that a message needs so that the wire is always busy, from the round trip and the rate
/// in the constants: a power of two, or `most`. If each of a lane's messages waits for one from
/// another rank, sending the other lanes' messages must take as long as one message travels. If
/// lanes stream, half of all credits must last until the other half returns.
std::size_t window_message_bytes(const MessageWindow& request, const Constants& constants);

}  // namespace tutti
