// A stand-in's stream: a thread with a queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

/// A thread that does what is queued, in order, each thing after a delay of its own.
class Worker {
public:
    explicit Worker(int most_delay_us)
        : most_delay_us_(most_delay_us), thread_([this] { run(); }) {}
    ~Worker() {
        {
            const std::lock_guard lock(mutex_);
            stop_ = true;
        }
        changed_.notify_all();
        thread_.join();
    }
    void add(std::function<void()> work) {
        {
            const std::lock_guard lock(mutex_);
            queue_.push_back(std::move(work));
            ++added_;
        }
        changed_.notify_all();
    }
    void drain() { (void)drain_for(std::chrono::hours(24)); }
    /// False: not all of what is queued now was done in that time.
    bool drain_for(std::chrono::seconds most) {
        std::unique_lock lock(mutex_);
        const auto upto = added_;
        return changed_.wait_for(lock, most, [&] { return done_ >= upto; });
    }

private:
    void run() {
        std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(this) >> 4));
        const auto most = static_cast<unsigned>(most_delay_us_);
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
            if (queue_.empty()) return;
            const auto work = std::move(queue_.front());
            queue_.pop_front();
            lock.unlock();
            if (most > 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
            work();
            lock.lock();
            ++done_;
            changed_.notify_all();
        }
    }
    const int most_delay_us_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    uint64_t added_ = 0, done_ = 0;
    bool stop_ = false;
    std::thread thread_;
};
