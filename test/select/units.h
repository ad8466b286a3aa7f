// The select tests count bytes in these units.
#pragma once

#include <cstddef>

inline constexpr std::size_t kib = 1024, mib = kib * kib;
