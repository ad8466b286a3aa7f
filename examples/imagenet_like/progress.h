// A line that fills while an epoch runs; for people, so not in pipes and files.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

namespace imagenet_like {

class Progress {
public:
    enum class When { automatic, always, never };
    /// automatic: if stream is a terminal. Behind tutti-run on one, whole lines, not as often.
    Progress(When when, std::FILE* stream);
    ~Progress() { clear(); }
    Progress(const Progress&) = delete;

    /// Draws at most ten times a second, and at the end; lines every two seconds.
    void show(const std::string& what, std::size_t done, std::size_t all, double images_per_s);
    /// Takes the line away, so that others may write.
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
