// Sleeping beside a driver: of several threads that wait for one communicator, one drives for all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace tutti {

/// The first thread that has nothing left but to sleep takes the seat and keeps it until its own
/// wait is over. The others sleep here, on a condition variable: a doorbell would wake them all for
/// each message. Any thread may call anything.
class DriverSeat {
public:
    bool try_take() { return !taken_.exchange(true); }
    /// Until done(), or until the driver has gone, or so long. True: this thread has the seat.
    template <typename Done>
    bool sleep_beside(Done done, int64_t limit_ms) {
        std::unique_lock lock(mutex_);
        beside_.fetch_add(1);
        bool drives = false;
        changed_.wait_for(lock, std::chrono::milliseconds(limit_ms),
                          [&] { return done() || (drives = try_take()); });
        beside_.fetch_sub(1);
        return drives;
    }
    void give() {
        taken_.store(false);
        wake();
    }
    /// Something is done. Either this sees who sleeps here, or that thread sees what is done.
    void wake() {
        if (beside_.load(std::memory_order_seq_cst) == 0) return;
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
    }

private:
    std::atomic<bool> taken_{false};
    std::atomic<int> beside_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
};

}  // namespace tutti
