// Networks whose hosts lie far apart: what the way there adds to the cost model, and how large
// messages must be so that lanes do not stand still while theirs are on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "select/cost.h"

namespace tutti {

/// From here on hosts are far apart; nearer ones are what the built-in constants were measured for.
inline constexpr double far_round_trip_us = 1000;

/// Half of a measured round trip, so coarse that a job gets the same on each start: 0 if the hosts
/// are not far apart, else half of the nearest of 1, 4, 16, 64, … ms.
double coarse_latency_us(double round_trip_us);

/// The constants of a wire where each message is at least so long on its way. measured: they are of
/// a file or of this job; else the rate is taken to be 10 Gbit/s at most, and less with every
/// connection that a link has.
Constants over_distance(Constants constants, double latency_us, bool measured);

/// The bytes that are under way between two hosts when the wire is busy.
double bytes_on_the_way(const Constants& constants);

/// A choice's lanes, and what bounds its messages.
struct MessageWindow {
    uint32_t lanes = 1;
    uint32_t credits = 1;   // messages of a lane that may be under way
    bool streams = false;   // no lane waits for a message before it sends the next
    std::size_t least = 0;  // bytes of a message
    std::size_t most = 0;   // likewise: what memory allows
};
/// The bytes that a message needs so that the wire is busy all the time, by the round trip and the
/// rate that the constants state: a power of two, or `most`. If each of a lane's messages waits for
/// one from another rank, the other lanes' messages must take as long to leave as one is on its
/// way. If lanes stream, half of all credits must last until the other half comes back.
std::size_t window_message_bytes(const MessageWindow& request, const Constants& constants);

}  // namespace tutti
