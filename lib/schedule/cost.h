// An algorithm's cost in the LogGP model: counts of hops, messages and bytes, not times.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

/// The growth of a lane's number of steps with the number n of ranks, if the ranks per host are
/// bounded. Time and memory to generate the steps grow alike.
enum class Growth : uint8_t { constant, logarithmic, linear };

constexpr std::string_view growth_name(Growth growth) {
    constexpr std::string_view names[] = {"O(1)", "O(log n)", "O(n)"};
    return names[static_cast<unsigned>(growth)];
}

/// For one tile, on the ranks that bound the time; the same on every rank. Bytes are fractions of
/// the bytes that selection counts: the whole message, or all blocks of one buffer.
struct Cost {
    double hops = 0;      // the longest chain of messages
    double messages = 0;  // the most messages that one rank sends, or receives
    double path = 0;      // bytes sent in sequence, from the first sender to the last receiver
    double busy = 0;      // the most bytes that one rank sends, or receives
    double partial = 0;   // of these, partial results, which are twice as wide for 16-bit floats
    double reduced = 0;   // the most bytes that one rank adds
    double peers = 0;     // channels that one rank sends on, or receives from
    double share = 0;     // bytes that a rank sends on average: decisive if ranks share cores
    double each = 0;      // messages that a rank sends on average; 0: all messages have one length,
                          // so as `share` to `busy`

    /// Messages that a rank sends on average.
    constexpr double mean_messages() const {
        if (each > 0) return each;
        return busy > 0 ? messages * share / busy : messages;
    }
};

}  // namespace tutti
