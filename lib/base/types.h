// Names that every folder shares.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

using Rank = int32_t;
inline constexpr Rank nobody = -1;

// One cache line, and the distance at which neighbouring-line prefetch stops two writers sharing.
inline constexpr std::size_t cache_line_bytes = 64;
inline constexpr std::size_t no_share_bytes = 128;

constexpr std::size_t round_up(std::size_t value, std::size_t multiple) {
    return (value + multiple - 1) / multiple * multiple;
}

}  // namespace tutti
