// Sizes on command lines. Header only, because both tutti-bench and the programs of tools/ use it.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "complain.h"

namespace command_line {

/// Parses a size such as "8", "64K", "128M" or "1G" (powers of 1024). Returns nullopt for any other
/// text.
inline std::optional<uint64_t> parse_bytes(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return {};
    const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
    unsigned shift = 0;
    if (!rest.empty()) {
        const auto unit = std::string_view("KMGkmg").find(rest.front());
        const std::string_view tail = rest.substr(1);
        if (unit == std::string_view::npos) return {};
        if (!tail.empty() && tail != "i" && tail != "iB" && tail != "B") return {};
        shift = 10 * (static_cast<unsigned>(unit) % 3 + 1);
    }
    if (value > std::numeric_limits<uint64_t>::max() / 2 >> shift) return {};
    return value << shift;
}

/// Check of an option: returns an error text if the text is not a size.
inline std::string check_bytes(const std::string& text) {
    if (parse_bytes(text)) return {};
    return with_advice("'" + text + "' is not a size in bytes",
                       "give one such as 8, 64K, 128M or 1G");
}

}  // namespace command_line
