// The LogGP-like model: what an algorithm needs (Cost) times what a wire takes for it (Constants).
// Linear, so that tutti-tune fits the constants by least squares, and pure: the same on every rank.
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
    hop,          // a message that the next one waits for: latency
    turn,         // a hop, for each further rank on the same core: that rank's turn
    message,      // sending or receiving one more: overhead
    kib,          // 1,024 bytes sent and received
    reduced_kib,  // 1,024 bytes added
    spread_kib,   // 1,024 bytes, for each doubling of the peers: their cells share the caches
    flat,         // the intrinsic: an operation,
    flat_turn,    // a further rank on the same core,
    flat_kib,     // 1,024 bytes read
};
inline constexpr std::size_t term_count = 10;
using Terms = std::array<double, term_count>;  // how many of each
using Constants = std::array<double, term_count>;

constexpr double& at(Terms& terms, Term term) {
    return terms[static_cast<std::size_t>(term)];
}
constexpr double at(const Terms& terms, Term term) {
    return terms[static_cast<std::size_t>(term)];
}

/// As tuning files spell them: "hop_us".
std::string_view term_name(Term term);

/// Measured on the machine of docs/explanation/selection.md for the transports there are; for
/// others, from what the transport says of itself.
Constants default_constants(std::string_view wire, const Capabilities& capabilities,
                            bool within_host = false);

/// The parts of a call's cost that do not depend on the algorithm.
struct Load {
    Rank ranks = 1;
    std::size_t bytes = 0;
    double crowding = 1;    // ranks per core, at least 1
    uint32_t widening = 1;  // how many times as wide as an input a partial result is
};

/// A schedule's, with messages of at most so many bytes.
Terms schedule_terms(const Cost& cost, const Load& load, std::size_t message_bytes);
/// The flat exchange's: everyone reads `reads` messages, and waits for such a share of the others.
Terms flat_terms(const Load& load, double reads, double waits);

double time_us(const Terms& terms, const Constants& constants);

/// The message size at which a pipeline is fastest: small ones fill it soon, large ones cost fewer
/// starts. A power of two.
std::size_t pipeline_message_bytes(const Cost& cost, const Load& load, const Constants& constants,
                                   std::size_t least, std::size_t most);

}  // namespace tutti
