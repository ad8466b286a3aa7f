#include "wait/reactor_timer.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

ReactorTimer::~ReactorTimer() {
    if (timer_) reactor_.remove(timer_.get());
}

Result<> ReactorTimer::open() {
    timer_ = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer_) return fail_errno(errno, "cannot create a timer");
    return reactor_.add(timer_.get(), EPOLLIN, [this](uint32_t) {
        uint64_t expirations = 0;
        // An empty descriptor: another thread has armed the timer anew since the poll.
        if (::read(timer_.get(), &expirations, sizeof expirations) > 0) handler_();
    });
}

void ReactorTimer::arm(int64_t due_ns) const {
    if (!timer_) return;
    itimerspec when{};
    when.it_value.tv_sec = due_ns / 1'000'000'000;
    when.it_value.tv_nsec = due_ns % 1'000'000'000;
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace tutti
