#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace imagenet_like {
namespace {

constexpr std::size_t bar_columns = 30;
constexpr auto between_bars = std::chrono::milliseconds(100);
constexpr auto between_lines = std::chrono::seconds(2);

}  // namespace

Progress::Progress(When when, std::FILE* stream)
    : stream_(stream), style_(Style::none), drawn_(Clock::now()) {
    if (when == When::always || ::isatty(::fileno(stream)) == 1)
        style_ = Style::bar;
    else if (std::getenv("TUTTI_RUN_TERMINAL") != nullptr)
        style_ = Style::lines;
    if (when == When::never) style_ = Style::none;
}

void Progress::show(const std::string& what, std::size_t done, std::size_t all,
                    double images_per_s) {
    const Clock::time_point now = Clock::now();
    const bool lines = style_ == Style::lines;
    const bool soon =
        lines ? now - drawn_ < between_lines : now - drawn_ < between_bars && done < all;
    if (style_ == Style::none || soon) return;
    drawn_ = now;
    const std::size_t full = all == 0 ? 0 : bar_columns * done / all;
    const std::string line =
        fmt::format("{} [{}{}] {}/{} {:.0f} images/s", what, std::string(full, '#'),
                    std::string(bar_columns - full, '.'), done, all, images_per_s);
    if (lines)
        fmt::print(stream_, "{}\n", line);
    else
        fmt::print(stream_, "\r{:<{}}", line, std::exchange(width_, line.size()));
    std::fflush(stream_);
}

void Progress::clear() {
    if (width_ == 0) return;
    fmt::print(stream_, "\r{:{}}\r", "", width_);
    std::fflush(stream_);
    width_ = 0;
}

}  // namespace imagenet_like
