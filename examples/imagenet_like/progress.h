// A progress bar for an epoch. It is for people, so by default pipes and files get none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace imagenet_like {

class Progress {
public:
    enum class When { automatic, always, never };
    /// automatic: draws if stream is a terminal. Under a tutti-run that writes to a terminal,
    /// prints whole lines, less often.
    Progress(When when, std::FILE* stream);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;

    /// Draws at most ten times a second, and at the end. Prints whole lines every two seconds.
    void show(const std::string& what, std::size_t done, std::size_t all, double images_per_s);
    /// Removes the line, so that other output can follow.
    void clear();

private:
    using Clock = std::chrono::steady_clock;
    enum class Style { none, bar, lines };
    std::FILE* stream_;
    Style style_;
    std::size_t width_ = 0;
    Clock::time_point drawn_;
};

}  // namespace imagenet_like
