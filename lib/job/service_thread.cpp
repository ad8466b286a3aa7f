#include "job/service_thread.h"

#include <algorithm>
#include <chrono>

#include "control/tree_message.h"
#include "os/signals.h"
#include "wait/backoff.h"

namespace tutti {
namespace {

constexpr int service_tick_ms = 1000;
constexpr int64_t stop_ms = 1000;

/// The service thread's work to sleep for: operations for which no thread of the program waits.
struct LeftToThread {
    bool announce() { return clients.arm(true); }
    bool check(bool& moved) { return clients.drive(moved); }
    void recall() { clients.arm(false); }
    ClientTable& clients;
};

}  // namespace

Result<> ServiceThread::start() {
    const NoSignals for_the_thread;
    serving_ = true;
    TUTTI_ASSIGN(thread_, Thread::start("the service thread", [this] { serve(); }));
    return {};
}

void ServiceThread::pump() {
    if (!wakeups_.manual()) return;
    wakeups_.reactor().poll(0);
    opener_.open_all();
}

void ServiceThread::ask_to_stop() {
    stop_ = true;
    wakeups_.wake_service();
}

void ServiceThread::stop() {
    ask_to_stop();
    thread_.join();
}

bool ServiceThread::stop(Deadline deadline) {
    ask_to_stop();
    // A completion callback on this thread has called exit(): the thread does nothing else any
    // more.
    if (thread_.is_this()) return true;
    {
        std::unique_lock lock(mutex_);
        if (!ended_.wait_for(lock, std::chrono::milliseconds(deadline.left_ms(stop_ms)),
                             [this] { return !serving_; }))
            return false;
    }
    thread_.join();
    return true;
}

void ServiceThread::serve() {
    LeftToThread work{clients_};
    Backoff backoff;
    while (!stop_) {
        opener_.open_all();
        bool moved = false;
        if (!clients_.drive(moved)) {
            wakeups_.sleep_idle(wakeups_.handover().sleep_ms(service_tick_ms));
            backoff.reset();
            continue;
        }
        backoff.set_oversubscribed(assembly_.oversubscribed());
        const Backoff::Turn turn = backoff.next(moved);
        // An operation was there that no thread of the program waits for.
        if (moved || turn != Backoff::Turn::spin) wakeups_.handover().needed();
        if (turn == Backoff::Turn::look) wakeups_.reactor().poll(0);
        if (turn != Backoff::Turn::sleep) continue;
        wakeups_.doze(work);
        backoff.woke();
    }
    const std::lock_guard lock(mutex_);
    serving_ = false;
    ended_.notify_all();
}

Result<> BeatThread::start() {
    const NoSignals for_the_thread;
    TUTTI_ASSIGN(thread_, Thread::start("the heartbeat's thread", [this] { run(); }));
    return {};
}

void BeatThread::stop() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    stopped_.notify_all();
    thread_.join();
}

void BeatThread::run() {
    const std::chrono::milliseconds pause(std::max<int64_t>(1, heartbeat_.beat_check_ms()));
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, pause, [this] { return stop_; }))
        if (heartbeat_.note_running(now_ns()))
            links_.flood(TreeMessage{.topic = TreeMessage::Topic::beat}.encode(), nobody);
}

}  // namespace tutti
