// The predicted time of a thread's calls, which are planned and not made.
#pragma once

#include <thread>

#include "base/result.h"

namespace tutti {

/// For the issuing thread only. If threads take turns as that thread, one may estimate while the
/// others make their calls.
class Estimate {
public:
    /// Whether this thread's calls are to be planned only.
    bool is_of_this_thread() const { return open_ && thread_ == std::this_thread::get_id(); }

    Result<> begin() {
        if (open_)
            return fail(Code::invalid, "this communicator has an estimate already")
                .advice("call tutti_estimate_end on the thread that began it");
        open_ = true;
        thread_ = std::this_thread::get_id();
        total_us_ = 0;
        return {};
    }

    void add(double us) { total_us_ += us; }

    /// Returns the sum in microseconds.
    Result<double> end() {
        if (!is_of_this_thread())
            return fail(Code::invalid,
                        "this thread has not begun an estimate with this communicator")
                .advice("call tutti_estimate_begin before, on the same thread");
        open_ = false;
        return total_us_;
    }

    /// The error for calls that the cost model does not cover.
    static ErrorResult refusal(const char* calls) {
        return fail(Code::unsupported, "cannot estimate the time of {}", calls)
            .advice("call tutti_estimate_end before, and measure the time instead");
    }

private:
    bool open_ = false;
    std::thread::id thread_;
    double total_us_ = 0;
};

}  // namespace tutti
