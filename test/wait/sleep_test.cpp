// The protocol of sleeping, step by step: a peer, a thread beside or the thread itself moves the
// work at each point of it, and the sleep must end. A lost wake-up sleeps until the time-out.
#include "wait/sleep.h"

#include <thread>

#include "base/clock.h"
#include "support/catch.h"
#include "wait/wakeups.h"

using namespace tutti;

namespace {

constexpr int longest_ms = 40'000;
constexpr int64_t stall_ms = 20'000;

enum class Point { before, announced, looked, asleep };
constexpr Point points[] = {Point::before, Point::announced, Point::looked, Point::asleep};

template <typename Function>
void on_another_thread(Function function) {
    std::thread(function).join();
}

/// One channel that a peer moves once, at a point of the protocol.
class Channel {
public:
    Channel(Wakeups& wakeups, Point point) : waker_(wakeups.doorbell_fd()), point_(point) {}
    ~Channel() {
        if (late_.joinable()) late_.join();
    }

    bool announce() {
        at(Point::before);
        sleeper_.set_sleeping(true);
        at(Point::announced);
        if (point_ == Point::asleep) late_ = std::thread([this] { publish_late(); });
        return true;
    }
    bool check(bool& moved) {
        moved |= take();
        at(Point::looked);
        return !taken_;
    }
    void recall() { sleeper_.set_sleeping(false); }

    bool take() {
        if (taken_ || !published_.load(std::memory_order_seq_cst)) return false;
        return taken_ = true;
    }
    bool taken() const { return taken_; }
    void publish() {
        published_.store(true, std::memory_order_seq_cst);
        waker_.wake(sleeper_);
    }

private:
    void at(Point point) {
        if (point == point_) on_another_thread([this] { publish(); });
    }
    void publish_late() {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        publish();
    }

    const SleeperWaker waker_;
    const Point point_;
    Sleeper sleeper_;
    std::atomic<bool> published_{false};
    bool taken_ = false;
    std::thread late_;
};

/// Sleeps until the channel has moved.
template <typename Sleep>
void expect_woken(Channel& channel, Sleep sleep) {
    const int64_t began = now_ns();
    while (!channel.taken() && ns_to_ms(now_ns() - began) < stall_ms) {
        sleep();
        channel.take();
    }
    CHECK(ns_to_ms(now_ns() - began) < stall_ms);
}

}  // namespace

TEST_CASE("sleep: a thread of the program wakes whenever a peer moves its work") {
    for (const bool manual : {false, true})
        for (const Point point : points) {
            INFO("point " << static_cast<int>(point) << (manual ? ", manual" : ""));
            Wakeups wakeups(manual, longest_ms);
            REQUIRE(wakeups.open());
            Channel channel(wakeups, point);
            expect_woken(channel, [&] { wakeups.sleep(channel, longest_ms); });
        }
}

TEST_CASE("sleep: a service thread that dozes wakes whenever a peer moves its work") {
    for (const Point point : points) {
        INFO("point " << static_cast<int>(point));
        Wakeups wakeups(false, longest_ms);
        REQUIRE(wakeups.open());
        Channel channel(wakeups, point);
        expect_woken(channel, [&] { wakeups.doze(channel); });
    }
}

namespace {

/// Work that never moves. Something else happens at a point of the protocol.
template <typename Happens>
struct Idle {
    bool announce() {
        if (point == Point::announced) happens();
        return all;
    }
    bool check(bool&) {
        if (point == Point::looked) happens();
        return waits;
    }
    void recall() { recalled = true; }

    Point point;
    Happens happens;
    bool all = true, waits = true, recalled = false;
};
template <typename Happens>
Idle(Point, Happens) -> Idle<Happens>;

template <typename Work, typename Sleep>
void expect_short(Work& work, Sleep sleep) {
    const int64_t began = now_ns();
    sleep(work);
    CHECK(ns_to_ms(now_ns() - began) < stall_ms);
    CHECK(work.recalled);
}

}  // namespace

TEST_CASE("sleep: a thread sleeps neither beside one that is at its work, nor when that is over") {
    Wakeups wakeups(false, longest_ms);
    REQUIRE(wakeups.open());
    for (const bool over : {false, true}) {
        Idle work{Point::before, [] {}};
        (over ? work.waits : work.all) = false;
        expect_short(work, [&](auto& idle) { wakeups.sleep(idle, longest_ms); });
        work.recalled = false;
        expect_short(work, [&](auto& idle) { wakeups.doze(idle); });
    }
}

// The doorbell has rung for this thread, and another that polls has answered it in its place.
TEST_CASE("sleep: another thread that drains the doorbell ends the sleep") {
    for (const Point point : {Point::announced, Point::looked}) {
        Wakeups wakeups(false, longest_ms);
        REQUIRE(wakeups.open());
        Idle work{point, [&] {
                      wakeups.ring();
                      on_another_thread([&] { wakeups.data_reactor().poll(0); });
                  }};
        expect_short(work, [&](auto& idle) { wakeups.sleep(idle, longest_ms); });
    }
}

TEST_CASE("sleep: a ring of its own doorbell ends the service thread's") {
    for (const Point point : {Point::before, Point::announced, Point::looked}) {
        Wakeups wakeups(false, longest_ms);
        REQUIRE(wakeups.open());
        if (point == Point::before) wakeups.wake_service();
        Idle work{point, [&] { wakeups.wake_service(); }};
        expect_short(work, [&](auto& idle) { wakeups.doze(idle); });
    }
}

// The ring was perhaps the service thread's wake-up.
TEST_CASE("sleep: a thread that drains the doorbell while the service thread dozes wakes it") {
    Wakeups wakeups(false, longest_ms);
    REQUIRE(wakeups.open());
    Idle program{Point::before, [] {}};
    Idle service{Point::looked, [&] {
                     wakeups.ring();
                     on_another_thread([&] { wakeups.sleep(program, longest_ms); });
                 }};
    expect_short(service, [&](auto& idle) { wakeups.doze(idle); });
    CHECK(wakeups.service_woken());
}

// The thread looks at one place, and at a second, where it moves what the first waits for: no
// doorbell rings for a thread that is awake.
TEST_CASE("sleep: a thread that moves its own work does not sleep on that") {
    Wakeups wakeups(false, longest_ms);
    REQUIRE(wakeups.open());
    Sleeper sleeper;
    const SleeperWaker waker(wakeups.doorbell_fd());
    sleeper.set_sleeping(true);
    Idle work{Point::looked, [&] { waker.wake(sleeper); }};
    expect_short(work, [&](auto& idle) { wakeups.sleep(idle, longest_ms); });
    CHECK(wakeups.data_reactor().poll(0) == 0);
    // A program that sleeps on the descriptor later has moved it before or after the announcement.
    CHECK(announce_and_check(work));
    work.point = Point::before;
    waker.wake(sleeper);
    CHECK(announce_and_check(work));
    CHECK_FALSE(announce_and_check(work));
    // It has seen since what it moved before it began to sleep.
    waker.wake(sleeper);
    const int64_t began = now_ns();
    wakeups.sleep(work, 50);
    CHECK(ns_to_ms(now_ns() - began) >= 40);
}
