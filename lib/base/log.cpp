#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <iterator>

namespace tutti::log {
namespace {

constexpr std::string_view names[] = {"trace", "debug", "info", "warn", "error", "off"};
constexpr spdlog::level::level_enum spd_levels[] = {spdlog::level::trace, spdlog::level::debug,
                                                    spdlog::level::info,  spdlog::level::warn,
                                                    spdlog::level::err,   spdlog::level::off};

std::atomic<Level> current{Level::warn};

// The host program may use spdlog too, so this logger is not in spdlog's registry.
spdlog::logger& logger() {
    static auto* made = [] {
        auto* l = new spdlog::logger("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        l->set_level(spdlog::level::trace);
        l->set_pattern("[tutti %P %H:%M:%S.%e %l] %v");
        return l;
    }();
    return *made;
}

}  // namespace

bool parse_level(std::string_view word, Level& level) {
    for (std::size_t i = 0; i < std::size(names); ++i) {
        if (word != names[i]) continue;
        level = static_cast<Level>(i);
        return true;
    }
    return false;
}

std::string_view level_names() {
    return "trace, debug, info, warn, error, off";
}

void set_level(Level level) {
    current.store(level, std::memory_order_relaxed);
}

bool enabled(Level level) {
    return level >= current.load(std::memory_order_relaxed);
}

void write(Level level, std::string_view text) {
    logger().log(spd_levels[static_cast<std::size_t>(level)], text);
}

void warn(const Error& failure) {
    if (enabled(Level::warn)) write(Level::warn, error_text(failure));
}

void error(const Error& failure) {
    if (enabled(Level::error)) write(Level::error, error_text(failure));
}

}  // namespace tutti::log
