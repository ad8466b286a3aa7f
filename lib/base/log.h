// Log lines to standard error through spdlog, prefixed with the rank. Level: TUTTI_LOG.
#pragma once

#include <fmt/core.h>

#include <string_view>

#include "base/result.h"

namespace tutti::log {

enum class Level : uint8_t { trace, debug, info, warn, error, off };

/// Parses "debug", "warn", …; false if the word is no level.
bool parse_level(std::string_view word, Level& level);
std::string_view level_names();  // for messages: "trace, debug, info, warn, error, off"

void set_level(Level level);
bool enabled(Level level);
void write(Level level, std::string_view text);

template <typename... Args>
void debug(fmt::format_string<Args...> text, Args&&... args) {
    if (enabled(Level::debug)) write(Level::debug, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> text, Args&&... args) {
    if (enabled(Level::info)) write(Level::info, fmt::format(text, std::forward<Args>(args)...));
}

/// A warning has the form of an error: "rank REPORTER: MESSAGE. What to do: ADVICE".
/// `log::warn(fail(Code::auth, "turned away {}", origin).advice("compare TUTTI_SECRET"));`
void warn(const Error& failure);
void error(const Error& failure);
inline void warn(const ErrorResult& failed) {
    warn(failed.value());
}
inline void error(const ErrorResult& failed) {
    error(failed.value());
}

}  // namespace tutti::log
