// The last words of a program: one way for tutti-bench, the benches beside it and tools/.
#pragma once

#include <cstdio>
#include <string_view>

namespace command_line {

/// "PROGRAM: why" on standard error: for main's catch handlers, too.
inline void complain(const char* program, std::string_view why) noexcept {
    std::fprintf(stderr, "%s: %.*s\n", program, static_cast<int>(why.size()), why.data());
}

}  // namespace command_line
