#include "select/cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace tutti {
namespace {

constexpr double bytes_per_kib = 1024;

struct MeasuredConstants {
    std::string_view wire;
    Constants constants;
};
// start, hop, turn, message, kib, reduced_kib, spread_kib, flat, flat_turn, flat_kib
constexpr MeasuredConstants measured[] = {
    {"inproc", {0.03, 0.28, 0.38, 0.05, 0.062, 0.059, 0.0065, 0.02, 1.5, 0.026}},
    {"shm", {0.03, 0.28, 0.38, 0.05, 0.062, 0.059, 0.0065, 0.02, 1.5, 0.026}},
    {"tcp", {0.51, 0.78, 3.5, 8.1, 0.43, 0.025, 0.0017, 0, 0, 0}},
    {"shm+tcp", {0.54, 0.81, 0.80, 6.5, 0.23, 0.034, 0.011, 0, 0, 0}},
};

// Scales the bytes of partial results to their width.
Cost widened(Cost cost, const Load& load) {
    if (cost.busy <= 0) return cost;
    const double factor = 1 + cost.partial / cost.busy * (load.widening - 1);
    for (double* bytes : {&cost.path, &cost.busy, &cost.share}) *bytes *= factor;
    return cost;
}

}  // namespace

std::string_view term_name(Term term) {
    constexpr std::string_view names[term_count] = {
        "start_us",       "hop_us",        "turn_us", "message_us",   "kib_us",
        "reduced_kib_us", "spread_kib_us", "flat_us", "flat_turn_us", "flat_kib_us"};
    return names[static_cast<std::size_t>(term)];
}

Constants default_constants(std::string_view wire, const Capabilities& c, bool within_host) {
    // A library over sockets costs as much as sockets. In the wire's name, the part between hosts
    // stands last.
    const bool neighbours_apart = wire.find('+') != std::string_view::npos;
    if (within_host ? c.sockets_within : c.sockets) wire = neighbours_apart ? "shm+tcp" : "tcp";
    for (const MeasuredConstants& row : measured)
        if (row.wire == wire) return row.constants;
    Constants constants{};
    at(constants, Term::hop) = std::max(c.latency_us, 0.05);
    at(constants, Term::turn) = 2 * std::max(c.latency_us, 0.3);
    at(constants, Term::message) = at(constants, Term::hop) / 2;
    at(constants, Term::kib) = bytes_per_kib / 1000 / std::max(c.bandwidth_gbs, 0.01);
    at(constants, Term::reduced_kib) = 0.01;
    return constants;
}

Terms schedule_terms(const Cost& plain, const Load& load, std::size_t message_bytes) {
    const Cost cost = widened(plain, load);
    const auto bytes = static_cast<double>(load.bytes);
    // If ranks share cores, the work of all of them counts, not only the busiest rank's.
    const double even = cost.busy > 0 ? cost.share / cost.busy * load.crowding : load.crowding;
    const double work = std::max(1.0, even);
    const double messages = std::max(cost.messages, cost.mean_messages() * load.crowding);
    double tiles = 1;
    if (cost.messages > 0 && message_bytes > 0) {
        // All messages are cut as if they held partial results, if any does.
        const double longest = plain.busy * (plain.partial > 0 ? load.widening : 1);
        tiles = std::ceil(longest * bytes / cost.messages / static_cast<double>(message_bytes));
    }
    tiles = std::max(tiles, 1.0);
    // The first tile takes the whole path; later tiles follow as fast as the busiest rank can send.
    const double serial = std::max(0.0, cost.path - cost.busy) / tiles;
    Terms terms{};
    at(terms, Term::start) = std::max(1.0, load.crowding);
    at(terms, Term::hop) = cost.hops;
    at(terms, Term::turn) = cost.hops * (load.crowding - 1);
    at(terms, Term::message) = messages * tiles;
    at(terms, Term::kib) = (cost.busy * work + serial) * bytes / bytes_per_kib;
    at(terms, Term::reduced_kib) = cost.reduced * work * bytes / bytes_per_kib;
    at(terms, Term::spread_kib) = at(terms, Term::kib) * std::log2(std::max(1.0, cost.peers));
    return terms;
}

Terms flat_terms(const Load& load, double reads, double waits) {
    Terms terms{};
    at(terms, Term::flat) = 1;
    at(terms, Term::flat_turn) = (load.crowding - 1) * waits;
    at(terms, Term::flat_kib) =
        reads * load.crowding * static_cast<double>(load.bytes) / bytes_per_kib;
    return terms;
}

double time_us(const Terms& terms, const Constants& constants) {
    return std::inner_product(terms.begin(), terms.end(), constants.begin(), 0.0);
}

// The time with n tiles of t bytes is n × (the cost of their messages) + t × (the cost that only
// the first and the last tile add: the path, and the receiver's copy). It is least when both are
// equal.
std::size_t pipeline_message_bytes(const Cost& plain, const Load& load, const Constants& constants,
                                   std::size_t least, std::size_t most) {
    const Cost cost = widened(plain, load);
    const double starts = cost.messages * (at(constants, Term::message) +
                                           at(constants, Term::turn) * (load.crowding - 1));
    const double fill = (cost.path - cost.busy + 1) * at(constants, Term::kib) / bytes_per_kib;
    const double tile = std::sqrt(static_cast<double>(load.bytes) * starts / std::max(fill, 1e-9));
    const double message = tile * cost.busy / std::max(cost.messages, 1.0);
    if (!(message < static_cast<double>(most))) return most;
    return std::clamp(std::bit_ceil(static_cast<std::size_t>(message) + 1), std::min(least, most),
                      most);
}

}  // namespace tutti
