#include "select/distance.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace tutti {
namespace {

constexpr double far_kib_us = 0.82;
// Connections that share a link fill its queue, and the kernel resends dropped packets: on four
// hosts, an all-to-all exchange takes a fifth longer than a ring, in which each link has one
// connection.
constexpr double far_spread_kib_us = 0.8;

}  // namespace

double coarse_latency_us(double round_trip_us) {
    if (!(round_trip_us >= far_round_trip_us) || !std::isfinite(round_trip_us)) return 0;
    const double power = std::round(std::log2(round_trip_us / far_round_trip_us) / 2);
    return far_round_trip_us / 2 * std::exp2(2 * power);
}

Constants over_distance(Constants constants, double latency_us, bool measured) {
    double& hop_us = at(constants, Term::hop);
    hop_us = std::max(hop_us, latency_us);
    if (measured) return constants;
    for (const auto& [term, least] :
         {std::pair{Term::kib, far_kib_us}, std::pair{Term::spread_kib, far_spread_kib_us}})
        at(constants, term) = std::max(at(constants, term), least);
    return constants;
}

double bytes_on_the_way(const Constants& constants) {
    return at(constants, Term::hop) / std::max(at(constants, Term::kib), 1e-3) * 1024;
}

std::size_t window_message_bytes(const MessageWindow& r, const Constants& constants) {
    const double on_the_way = bytes_on_the_way(constants);
    const double others = r.lanes - 1, half = std::max(1.0, r.credits * r.lanes / 2.0);
    double bytes = static_cast<double>(r.most);
    if (r.streams)
        bytes = 2 * on_the_way / half;
    else if (others > 0)
        bytes = on_the_way / others;
    if (!(bytes < static_cast<double>(r.most))) return r.most;
    return std::clamp(std::bit_ceil(static_cast<std::size_t>(bytes) + 1), std::min(r.least, r.most),
                      r.most);
}

}  // namespace tutti
