// Many threads that wait for several communicators' worth of made-up work, beside each other, a
// service thread and the peers that move it. In each round every request needs its last wake-up, as
// nothing follows it: one that is lost shows as a wait that runs out of its time.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"
#include "wait/owner.h"
#include "wait/wait_loop.h"

using namespace tutti;

namespace {

constexpr int longest_sleep_ms = 60'000;
constexpr int64_t lost_ms = 20'000;  // no wake-up takes that long
constexpr int64_t run_ms = 1'500;
constexpr std::size_t comms = 3, slots = 3;

/// A request on a stream of its own. It is over when a peer has moved it so many times.
struct Slot {
    OwnerFlag owner;
    std::atomic<int> wanted{0}, published{0};
    Sleeper sleeper;
    std::atomic<bool> done{true};
    // The owner's.
    int taken = 0;
    bool left = false;  // to the service thread
};

struct Comm {
    explicit Comm(Wakeups& wakeups) : waiting(wakeups) {}

    void start(Slot& slot, int moves, bool left) {
        const OwnerGuard owned(slot.owner);
        if (left) waiting.add_pending();
        slot.left = left;
        slot.wanted = moves;
    }
    void drive(bool& moved) {
        for (Slot& slot : all) {
            if (slot.wanted.load(std::memory_order_relaxed) == 0) continue;
            const OwnerGuard owned(slot.owner, OwnerGuard::Try{});
            if (!owned.held() || slot.wanted == 0) continue;
            const int published = slot.published.load(std::memory_order_seq_cst);
            moved |= published != slot.taken;
            slot.taken = published;
            if (published >= slot.wanted) finish(slot);
        }
    }
    bool arm(bool on) {
        bool got_all = true;
        for (Slot& slot : all) {
            if (slot.wanted.load(std::memory_order_relaxed) == 0) continue;
            const OwnerGuard owned(slot.owner, OwnerGuard::Try{});
            got_all &= owned.held();
            if (owned.held()) slot.sleeper.set_sleeping(on);
        }
        return got_all;
    }

    Waiting waiting;
    std::array<Slot, slots> all;
    bool armed = false;  // by the service thread

private:
    void finish(Slot& slot) {
        slot.wanted = 0;
        slot.taken = 0;
        slot.published = 0;
        slot.sleeper.set_sleeping(false);
        if (slot.left) waiting.drop_pending();
        slot.done.store(true, std::memory_order_seq_cst);
        waiting.wake_sleepers();
    }
};

/// A process: doorbells, and a socket that any thread may read, in here a pipe.
class Place {
public:
    Place() : wakeups_(false, longest_sleep_ms) {
        REQUIRE(wakeups_.open());
        int fds[2];
        REQUIRE(::pipe2(fds, O_NONBLOCK | O_CLOEXEC) == 0);
        in_ = UniqueFd(fds[0]);
        out_ = UniqueFd(fds[1]);
        REQUIRE(wakeups_.data_reactor().add(in_.get(), EPOLLIN, [this](uint32_t) { receive(); }));
        for (std::size_t i = 0; i < comms; ++i) all_.push_back(std::make_unique<Comm>(wakeups_));
    }

    Wakeups& wakeups() { return wakeups_; }
    Comm& comm(std::size_t i) { return *all_[i]; }
    Slot& slot(std::size_t i) { return all_[i / slots]->all[i % slots]; }

    // A peer's: through memory, or through the socket.
    void publish(std::size_t i) {
        slot(i).published.fetch_add(1, std::memory_order_seq_cst);
        SleeperWaker(wakeups_.doorbell_fd()).wake(slot(i).sleeper);
    }
    void send(std::size_t i) {
        const auto byte = static_cast<char>(i);
        while (::write(out_.get(), &byte, 1) != 1) std::this_thread::yield();
    }
    /// Any thread's: reads the socket, unless another thread is at it.
    void receive() {
        if (!reader_.try_take()) return;  // level-triggered: asked again
        char bytes[16];
        const ssize_t got = ::read(in_.get(), bytes, sizeof bytes);
        for (ssize_t i = 0; i < got; ++i) publish(static_cast<std::size_t>(bytes[i]));
        reader_.give();
    }

    // The service thread's.
    bool drive_left(bool& moved) {
        bool busy = false;
        for (const auto& comm : all_) {
            if (!comm->waiting.pending() || comm->waiting.waiters()) continue;
            comm->drive(moved);
            if (!moved) receive();
            busy |= comm->waiting.pending();
        }
        return busy;
    }
    bool arm_left(bool on) {
        bool got_all = true;
        for (const auto& comm : all_) {
            if (on && comm->waiting.waiters()) continue;
            if (!on && !std::exchange(comm->armed, false)) continue;
            comm->armed = on;
            const bool got = comm->arm(on);
            got_all &= got || !on;
            if (!on) comm->waiting.wake_sleepers();
        }
        return got_all;
    }

private:
    Wakeups wakeups_;
    UniqueFd in_, out_;
    OwnerFlag reader_;
    std::vector<std::unique_ptr<Comm>> all_;
};

void pause(int turns) {
    for (int turn = 0; turn < turns; ++turn)
        turn % 64 == 63 ? std::this_thread::yield() : cpu_relax();
}

/// A thread stumbles between the steps of the protocol, so that peers come in between.
class Stumbling {
public:
    explicit Stumbling(unsigned seed) : state_(seed) {}
    void operator()() {
        state_ = state_ * 1664525 + 1013904223;  // Numerical Recipes
        if (const unsigned draw = state_ >> 16; draw % 2 == 0) pause(static_cast<int>(draw % 2048));
    }

private:
    unsigned state_;
};

/// A thread's wait for a slot, as ProgressEngine waits for a request.
struct SlotWait {
    bool done() const { return slot.done.load(std::memory_order_seq_cst); }
    bool ended() const { return done(); }
    void begin() {}
    void end() {}
    void drive(bool& moved) { comm.drive(moved); }
    void help(bool& moved) {
        if (!moved) place.receive();
    }
    void check_clocks() {}
    void advance() {}
    bool announce() {
        stumble();
        const bool all = comm.arm(true);
        stumble();
        return all;
    }
    bool check(bool& moved) {
        comm.drive(moved);
        stumble();
        return !done();
    }
    void recall() {
        stumble();
        comm.arm(false);
    }

    Place& place;
    Comm& comm;
    Slot& slot;
    Stumbling stumble;
};

struct ServiceWork {
    bool announce() {
        stumble();
        const bool all = place.arm_left(true);
        stumble();
        return all;
    }
    bool check(bool& moved) {
        const bool waits = place.drive_left(moved);
        stumble();
        return waits;
    }
    void recall() {
        stumble();
        place.arm_left(false);
    }

    Place& place;
    Stumbling stumble{1};
};

/// As ServiceThread::serve.
void serve(Place& place, const std::atomic<bool>& stop) {
    Wakeups& wakeups = place.wakeups();
    ServiceWork work{place};
    Backoff backoff(true);
    while (!stop) {
        wakeups.clear_service_wake();
        bool moved = false;
        if (!place.drive_left(moved)) {
            wakeups.sleep_idle(wakeups.handover().sleep_ms(longest_sleep_ms));
            backoff.reset();
            continue;
        }
        const Backoff::Turn turn = backoff.next(moved);
        if (moved || turn != Backoff::Turn::spin) wakeups.handover().needed();
        if (turn == Backoff::Turn::look) wakeups.reactor().poll(0);
        if (turn != Backoff::Turn::sleep) continue;
        wakeups.doze(work);
        backoff.woke();
    }
}

/// A slot's part in one round.
struct Part {
    enum class Way { idle, waits, sleeps_at_once, gives_up, leaves } way = Way::idle;
    int moves = 1;
    bool by_socket = false;
    int delay = 0;
    unsigned seed = 0;
};

/// The threads, in step: a round begins when the last one is over.
class Stress {
public:
    explicit Stress(unsigned seed) : random_(seed) {}

    void run() {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < parts_.size(); ++i) {
            threads.emplace_back([this, i] { in_step([&] { program(i); }); });
            threads.emplace_back([this, i] { in_step([&] { peer(i); }); });
        }
        std::atomic<bool> stop{false};
        std::thread service([&] { serve(place_, stop); });
        const auto end = Deadline::after_ms(run_ms);
        do {
            draw();
            step_.arrive_and_wait();
            step_.arrive_and_wait();
            ++rounds_;
        } while (lost_ == 0 && !end.passed());
        over_ = true;
        step_.arrive_and_wait();
        for (std::thread& thread : threads) thread.join();
        stop = true;
        place_.wakeups().wake_service();
        service.join();
    }
    int lost() const { return lost_; }
    int rounds() const { return rounds_; }

private:
    int up_to(int most) { return std::uniform_int_distribution<int>(0, most)(random_); }

    // Mostly few slots: the traffic of many rings for what one has lost.
    void draw() {
        const int busy = 1 + up_to(up_to(3) == 0 ? static_cast<int>(parts_.size()) - 1 : 2);
        for (Part& part : parts_) part = {};
        for (int i = 0; i < busy; ++i) {
            Part& part =
                parts_[static_cast<std::size_t>(up_to(static_cast<int>(parts_.size()) - 1))];
            part.way = static_cast<Part::Way>(1 + up_to(3));
            part.moves = 1 + up_to(2);
            part.seed = static_cast<unsigned>(random_());
            part.by_socket = up_to(2) == 0;
            part.delay = up_to(3) == 0 ? up_to(60'000) : up_to(3'000);
        }
    }
    template <typename Role>
    void in_step(Role role) {
        for (;;) {
            step_.arrive_and_wait();
            if (over_) return;
            role();
            step_.arrive_and_wait();
        }
    }

    void program(std::size_t i) {
        const Part& part = parts_[i];
        if (part.way == Part::Way::idle) return;
        Slot& slot = place_.slot(i);
        Comm& comm = place_.comm(i / slots);
        SlotWait work{place_, comm, slot, Stumbling(part.seed)};
        const bool left = part.way == Part::Way::leaves;
        slot.done = false;
        comm.start(slot, part.moves, left);
        if (left) {
            // As ProgressEngine::hand_over.
            place_.wakeups().issued();
            comm.waiting.wake_sleepers();
            return expect(await(slot));
        }
        if (part.way == Part::Way::gives_up && wait_until_done(work, comm.waiting, true, 1)) return;
        if (part.way == Part::Way::sleeps_at_once) return expect(sleep_at_once(work));
        expect(wait_until_done(work, comm.waiting, true, lost_ms));
    }
    bool sleep_at_once(SlotWait& work) {
        const auto limit = Deadline::after_ms(lost_ms);
        work.comm.waiting.enter();
        while (!work.done() && !limit.passed())
            work.comm.waiting.sleep(work, limit.left_ms(longest_sleep_ms));
        work.comm.waiting.leave();
        work.comm.waiting.wake_sleepers();
        return work.done();
    }
    /// As a program that computes: only the service thread moves the slot.
    bool await(const Slot& slot) {
        const auto limit = Deadline::after_ms(lost_ms);
        while (!slot.done && !limit.passed())
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        return slot.done;
    }
    void expect(bool done) { lost_ += done ? 0 : 1; }

    void peer(std::size_t i) {
        const Part& part = parts_[i];
        if (part.way == Part::Way::idle) return;
        for (int move = 0; move < part.moves; ++move) {
            pause(part.delay);
            part.by_socket ? place_.send(i) : place_.publish(i);
        }
    }

    std::mt19937 random_;
    Place place_;
    std::array<Part, comms * slots> parts_;
    std::barrier<> step_{static_cast<std::ptrdiff_t>(2 * comms * slots + 1)};
    std::atomic<bool> over_{false};
    std::atomic<int> lost_{0};
    int rounds_ = 0;
};

}  // namespace

TEST_CASE("waiting: no wake-up is lost among many threads, communicators and the service thread") {
    std::random_device seeds;
    for (int run = 0; run < 3; ++run) {
        const unsigned seed = seeds();
        Stress stress(seed);
        stress.run();
        INFO("seed " << seed << ", round " << stress.rounds());
        REQUIRE(stress.lost() == 0);
        CHECK(stress.rounds() > 0);
    }
}
