// tools/check limits what tests do under the sanitizers, where every instruction costs ten.
#pragma once

#include <cstdlib>

namespace tutti::test {

/// Returns TUTTI_TEST_MAX_RANKS; without it, a number that no test reaches.
inline int max_ranks() {
    const char* text = std::getenv("TUTTI_TEST_MAX_RANKS");
    return text ? std::atoi(text) : 1 << 20;
}

}  // namespace tutti::test
