// The kinds of collective, by number and name: in tags on the wire, in catalogs, in messages.
#pragma once

#include <cstdint>
#include <iterator>
#include <string_view>

namespace tutti {

enum class Collective : uint8_t { allreduce, broadcast, barrier };

inline constexpr std::string_view collective_names[] = {"allreduce", "broadcast", "barrier"};
inline constexpr int collective_count = static_cast<int>(std::size(collective_names));

inline std::string_view collective_name(Collective collective) {
    const auto index = static_cast<std::size_t>(collective);
    return index < std::size(collective_names) ? collective_names[index] : "unknown";
}

}  // namespace tutti
