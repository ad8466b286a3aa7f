#include "comm/progress.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "comm/offload.h"
#include "wait/wait_loop.h"

namespace tutti {
namespace {

// Passes in which a blocking call drives only its own stream; small operations end within them.
constexpr int tight_passes = 1000;

}  // namespace

Result<> ProgressEngine::finish_blocking(Request& request) {
    Stream& stream = core_.streams[request.plan->stream];
    const int passes = core_.oversubscribed ? 1 : tight_passes;
    request.driven_by_issuer = true;
    for (int pass = 0; pass < passes; ++pass) {
        bool moved = false;
        core_.streams.drive(stream, moved);
        if (request.done()) break;
        if (!moved) core_.endpoint->transports().progress();
    }
    if (!request.done()) request.driven_by_issuer = false;
    core_.streams.release(stream);
    if (request.done())
        finish_call();
    else
        wait(request, -1);
    if (request.code.load(std::memory_order_acquire) == Code::ok) return {};
    return tl::unexpected(std::move(request.error));
}

bool ProgressEngine::drive_all(bool& moved) {
    const bool busy = core_.streams.drive_all(moved);
    return busy | core_.transfers.drive(moved);
}

void ProgressEngine::check_deadlines() {
    core_.failure_protocol.check_unreachable();
    core_.streams.check_deadlines();
    core_.transfers.check_deadlines();
}

bool ProgressEngine::arm_all(bool on) {
    const bool streams = core_.streams.arm(on);
    return core_.transfers.arm(on) && streams;
}

Result<> ProgressEngine::may_wait(const Request& request) const {
    TUTTI_TRY(core_.may_call());
    return request.done() ? Result<>{} : core_.offload->may_wait(request);
}

namespace {

struct EndOfRequest {
    bool happened() const { return request.done(); }
    bool ended() const { return request.wait_published(); }
    void check_clock() const {}
    const Request& request;
};

struct OtherEvent {
    bool happened() const { return event.happened(); }
    bool ended() const { return event.happened(); }
    void check_clock() const { event.check_clock(); }
    Event& event;
};

}  // namespace

/// A thread's wait.
template <typename Awaited>
class ProgressEngine::Wait {
public:
    Wait(ProgressEngine& engine, Awaited awaited)
        : engine_(engine), core_(engine.core_), awaited_(awaited), serves_(core_.manual()) {}

    bool done() const { return awaited_.happened(); }
    bool ended() const { return awaited_.ended(); }
    void begin() { engine_.recall(); }
    void end() {
        engine_.announce();
        // This thread has moved operations of other communicators, for which the program may sleep
        // on the descriptor.
        if (served_) core_.endpoint->wakeups().ring();
    }
    void drive(bool& moved) { engine_.drive_all(moved); }
    // With manual progress no other thread drives the endpoint's other communicators. Peers may
    // have to finish operations there before they reach the operation for which this thread waits.
    void help(bool& moved) {
        if (serves_) {
            serves_ = core_.endpoint->serve_clients(moved);
            served_ |= serves_;
        }
        if (!moved) core_.endpoint->transports().progress();
    }
    void check_clocks() {
        engine_.check_deadlines();
        core_.endpoint->pump();
        awaited_.check_clock();
        serves_ = core_.manual();
    }
    void advance() { engine_.advance(); }
    bool announce() {
        const bool own = engine_.arm_all(true);
        return (!core_.manual() || core_.endpoint->arm_clients(true)) && own;
    }
    bool check(bool& moved) {
        engine_.drive_all(moved);
        if (core_.manual()) core_.endpoint->serve_clients(moved);
        return !done();
    }
    void recall() {
        if (core_.manual()) core_.endpoint->arm_clients(false);
        engine_.arm_all(false);
    }

private:
    ProgressEngine& engine_;
    Core& core_;
    const Awaited awaited_;
    bool serves_, served_ = false;  // other communicators
};

/// The work of a program that may sleep on the descriptor after a call has returned. check() covers
/// other communicators, too: messages that came for them while this thread drove have rung no
/// doorbell, or their ring has been drained.
class ProgressEngine::LeftToProgram {
public:
    explicit LeftToProgram(ProgressEngine& engine) : engine_(engine) {}
    bool announce() {
        const bool all = engine_.arm_all(true);
        engine_.announced_ = true;
        return all;
    }
    bool check(bool& moved) {
        engine_.drive_all(moved);
        engine_.core_.endpoint->serve_clients(moved);
        return true;
    }
    void recall() { engine_.recall(); }

private:
    ProgressEngine& engine_;
};

bool ProgressEngine::wait(Request& request, int64_t timeout_ms) {
    if (request.done()) {
        core_.endpoint->wakeups().returns();
        return true;
    }
    Wait work(*this, EndOfRequest{request});
    return wait_until_done(work, core_.waiting, core_.oversubscribed, timeout_ms);
}

bool ProgressEngine::wait(Event& event, Deadline deadline) {
    Wait work(*this, OtherEvent{event});
    const int64_t most_ms =
        deadline.never() ? -1 : std::max<int64_t>(1, deadline.left_ms(INT64_MAX));
    return wait_until_done(work, core_.waiting, core_.oversubscribed, most_ms);
}

bool ProgressEngine::arm(bool on) {
    if (on) {
        check_deadlines();
        if (core_.waiting.waiters()) return true;
        recall();
        armed_ = true;
        return arm_all(true);
    }
    if (!std::exchange(armed_, false)) return true;
    arm_all(false);
    core_.waiting.wake_sleepers();
    return true;
}

// No doorbell rings when the run ends, so the thread polls every millisecond.
void ProgressEngine::wait_for_last_run(const Plan& plan) {
    if (!plan.busy_anywhere()) return;
    recall();
    Backoff backoff(core_.oversubscribed);
    while (plan.busy_anywhere()) {
        bool moved = false;
        drive_all(moved);
        if (!moved) core_.endpoint->transports().progress();
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::spin) continue;
        check_deadlines();
        core_.endpoint->pump();
        if (core_.manual()) core_.endpoint->serve_clients(moved);
        if (turn == Backoff::Turn::sleep) core_.endpoint->wakeups().nap();
    }
    finish_call();
}

void ProgressEngine::advance() {
    recall();
    core_.endpoint->pump();
    core_.endpoint->transports().progress();
    check_deadlines();
    bool moved = false;
    drive_all(moved);
    finish_call();
}

int ProgressEngine::fd() {
    announces_ = true;
    announce();
    return core_.endpoint->wakeups().wait_fd();
}

void ProgressEngine::hand_over() {
    core_.manual() ? announce() : core_.endpoint->wakeups().issued();
    core_.endpoint->wakeups().returns();
    core_.waiting.wake_sleepers();
}

/// The program continues, and its next call may come late.
void ProgressEngine::finish_call() {
    announce();
    core_.endpoint->wakeups().returns();
}

void ProgressEngine::announce_to_program() {
    LeftToProgram work(*this);
    if (announce_and_check(work)) core_.endpoint->wakeups().ring();
}

void ProgressEngine::recall() {
    // Every wait calls this, so read the flag first: the exchange writes its cache line.
    if (announced_.load(std::memory_order_relaxed) && announced_.exchange(false)) arm_all(false);
}

bool ProgressEngine::drive(bool& moved) {
    if (!core_.waiting.pending() || core_.waiting.waiters()) return false;
    drive_all(moved);
    if (!moved) core_.endpoint->transports().progress();
    return core_.waiting.pending();
}

}  // namespace tutti
