// Sizes, times and bandwidths as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::sim {

/// "10us", "0.5ms", "200ns", "1s".
std::optional<double> parse_us(std::string_view text);
/// "1Gbit", "100Mbit", "12.5GB", "800MB": powers of 1000 per second, with or without "/s".
std::optional<double> parse_bytes_per_s(std::string_view text);

/// "512", "64K", "1.5M".
std::string format_bytes(uint64_t bytes);
std::string format_us(double us);
/// "10 Gbit/s" for wires, "20 GB/s" for memory.
std::string format_bits_per_s(double bytes_per_s);
std::string format_bytes_per_s(double bytes_per_s);
/// "1 host", "4 hosts", "2 switches".
std::string plural(int count, std::string_view one);

}  // namespace tutti::sim
