// How tools print. Nothing here throws, as fmt::print does where nothing can be written.
#pragma once

#include <cstdio>
#include <string_view>

namespace tutti {

/// "PROGRAM: why" on standard error: for main's catch handlers, too.
inline void complain(const char* program, std::string_view why) noexcept {
    std::fprintf(stderr, "%s: %.*s\n", program, static_cast<int>(why.size()), why.data());
}

}  // namespace tutti
