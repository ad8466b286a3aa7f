// What a test may spend where every instruction costs ten (tools/check sets it for the sanitizers).
#pragma once

#include <cstdlib>

namespace tutti::test {

/// TUTTI_TEST_MAX_RANKS, or as many as anyone wants.
inline int max_ranks() {
    const char* text = std::getenv("TUTTI_TEST_MAX_RANKS");
    return text ? std::atoi(text) : 1 << 20;
}

}  // namespace tutti::test
