// As those of expect.h, for the threads of ranks.h.
#pragma once

#include <functional>
#include <string>

#include "trainer/expect.h"
#include "trainer/ranks.h"

namespace recovery_test {

inline void require_words(const std::string& text, const std::string& wanted) {
    ranks::require(text.find(wanted) != std::string::npos, "'" + text + "' lacks '" + wanted + "'");
}
inline void require_error(const std::function<void()>& call, const std::string& wanted) {
    require_words(expect::error_of(call), wanted);
}

}  // namespace recovery_test
