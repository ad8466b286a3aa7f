// The end of a rank at a chosen moment: so long after the nth beginning of something.
#pragma once

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

namespace recovery_test {

/// "NAME:MOMENT:NTH:MICROSECONDS", such as "2:shrink:1:350".
struct DoomPlan {
    int name = -1;  // of the rank
    std::string moment;
    int nth = 1;
    int delay_us = 0;
};

/// Calls `strike` on a thread of its own. The rank reports what it begins.
class Doom {
public:
    Doom(DoomPlan plan, std::function<void()> strike)
        : plan_(std::move(plan)), strike_(std::move(strike)) {}
    Doom(const Doom&) = delete;
    ~Doom() {
        if (timer_.joinable()) timer_.join();
    }

    void reach(const std::string& moment) {
        if (timer_.joinable() || moment != plan_.moment || ++seen_ != plan_.nth) return;
        timer_ = std::thread([this] {
            prctl(PR_SET_TIMERSLACK,
                  1);  // nanoseconds; the default of 50 us is as long as an operation
            std::this_thread::sleep_for(std::chrono::microseconds(plan_.delay_us));
            strike_();
        });
    }

private:
    const DoomPlan plan_;
    const std::function<void()> strike_;
    int seen_ = 0;
    std::thread timer_;
};

}  // namespace recovery_test
