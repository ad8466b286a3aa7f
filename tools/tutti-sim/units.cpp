#include "units.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

namespace tutti::sim {
namespace {

struct Unit {
    std::string_view name;
    double factor;
};

constexpr Unit times[] = {{"ns", 1e-3}, {"us", 1}, {"ms", 1e3}, {"s", 1e6}};
constexpr Unit bandwidths[] = {{"Kbit", 1e3 / 8},  {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8},
                               {"Tbit", 1e12 / 8}, {"KB", 1e3},       {"MB", 1e6},
                               {"GB", 1e9},        {"TB", 1e12}};

// Parses a number from 0 to a sensible limit, directly followed by one of the units.
template <std::size_t n>
std::optional<double> parse(std::string_view text, const Unit (&units)[n]) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || !(value >= 0 && value <= 1e9)) return {};
    const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
    for (const Unit& unit : units)
        if (rest == unit.name) return value * unit.factor;
    return {};
}

}  // namespace

std::optional<double> parse_us(std::string_view text) {
    return parse(text, times);
}

std::optional<double> parse_bytes_per_s(std::string_view text) {
    if (text.ends_with("/s")) text.remove_suffix(2);
    const auto rate = parse(text, bandwidths);
    return rate && *rate >= 1 ? rate : std::nullopt;
}

std::string format_bytes(uint64_t bytes) {
    constexpr std::string_view units[] = {"", "K", "M", "G", "T"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
    return fmt::format("{:.4g}{}", value, units[unit]);
}

std::string format_us(double us) {
    return us < 1000     ? fmt::format("{:.2f}", us)
           : us < 100000 ? fmt::format("{:.1f}", us)
                         : fmt::format("{:.0f}", us);
}

std::string format_bits_per_s(double bytes_per_s) {
    const double bits = bytes_per_s * 8;
    return bits >= 1e9 ? fmt::format("{:.4g} Gbit/s", bits / 1e9)
                       : fmt::format("{:.4g} Mbit/s", bits / 1e6);
}

std::string format_bytes_per_s(double bytes_per_s) {
    return bytes_per_s >= 1e9 ? fmt::format("{:.4g} GB/s", bytes_per_s / 1e9)
                              : fmt::format("{:.4g} MB/s", bytes_per_s / 1e6);
}

std::string plural(int count, std::string_view one) {
    return fmt::format("{} {}{}", count, one, count == 1 ? "" : one.ends_with("ch") ? "es" : "s");
}

}  // namespace tutti::sim
