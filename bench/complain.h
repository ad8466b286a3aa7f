// Errors of programs: one way to write them for tutti-bench, the benches beside it and tools/.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace command_line {

inline constexpr std::string_view advice_marker = ". What to do: ";

/// "MESSAGE. What to do: ADVICE", as tutti_last_error has it. The advice is an imperative without a
/// full stop.
inline std::string with_advice(std::string_view message, std::string_view advice) {
    std::string text(message);
    return text.append(advice_marker).append(advice);
}

inline bool has_advice(std::string_view text) {
    return text.find(advice_marker) != std::string_view::npos;
}

/// "PROGRAM: why" on standard error: for main's catch handlers, too.
inline void complain(const char* program, std::string_view why) noexcept {
    std::fprintf(stderr, "%s: %.*s\n", program, static_cast<int>(why.size()), why.data());
}

}  // namespace command_line
