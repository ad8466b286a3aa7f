// The LogGP-like model: the counts of an algorithm's operations (Cost) times the times of a wire
// (Constants). Linear, so that tutti-tune fits the constants by least squares, and pure: the same
// on every rank.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "schedule/cost.h"
#include "transport/transport.h"

namespace tutti {

/// Microseconds for one of each.
enum class Term : uint8_t {
    start,        // an operation
    hop,          // a message for which the next one waits: latency
    turn,         // per hop, for each further rank on the same core: that rank's time slice
    message,      // sending or receiving one more message: overhead
    kib,          // 1,024 bytes sent and received
    reduced_kib,  // 1,024 bytes added
    spread_kib,   // 1,024 bytes, for each doubling of the peers: their cells compete for the caches
    flat,         // the intrinsic: an operation,
    flat_turn,    // a further rank on the same core,
    flat_kib,     // 1,024 bytes read
};
inline constexpr std::size_t term_count = 10;
using Terms = std::array<double, term_count>;  // the count of each
using Constants = std::array<double, term_count>;

constexpr double& at(Terms& terms, Term term) {
    return terms[static_cast<std::size_t>(term)];
}
constexpr double at(const Terms& terms, Term term) {
    return terms[static_cast<std::size_t>(term)];
}

/// As tuning files spell them: "hop_us".
std::string_view term_name(Term term);

/// Measured for the transports on the machine of docs/explanation/selection.md; for others, derived
/// from the transport's own estimates.
Constants default_constants(std::string_view wire, const Capabilities& capabilities,
                            bool within_host = false);

/// The parts of a call's cost that do not depend on the algorithm.
struct Load {
    Rank ranks = 1;
    std::size_t bytes = 0;
    double crowding = 1;    // ranks per core, at least 1
    uint32_t widening = 1;  // the width of a partial result in inputs
};

/// The terms of a schedule, with messages of at most message_bytes.
Terms schedule_terms(const Cost& cost, const Load& load, std::size_t message_bytes);
/// The terms of the flat exchange: every rank reads `reads` messages, and waits for the fraction
/// `waits` of the other ranks.
Terms flat_terms(const Load& load, double reads, double waits);

double time_us(const Terms& terms, const Constants& constants);

/// The message size at which a pipeline is fastest: small messages fill it sooner, large ones cost
/// fewer starts. A power of two.
std::size_t pipeline_message_bytes(const Cost& cost, const Load& load, const Constants& constants,
                                   std::size_t least, std::size_t most);

}  // namespace tutti
