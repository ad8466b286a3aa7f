#include "comm/progress.h"

#include <utility>

#include "comm/offload.h"
#include "wait/backoff.h"
#include "wait/sleeper.h"

namespace tutti {
namespace {

// Passes of a blocking call that do nothing but drive its own stream: small operations end in them.
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

void ProgressEngine::look_at_clocks() {
    core_.agreement.look_at_unreachable();
    core_.streams.look_at_clocks();
    core_.transfers.look_at_clocks();
}

bool ProgressEngine::arm_all(bool on) {
    if (on) core_.endpoint->transports().before_sleep();
    const bool streams = core_.streams.arm(on);
    return core_.transfers.arm(on) && streams;
}

Result<> ProgressEngine::may_wait(const Request& request) const {
    TUTTI_TRY(core_.may_call());
    return request.done() ? Result<>{} : core_.offload->may_wait(request);
}

bool ProgressEngine::wait(Request& request, int64_t timeout_ms) {
    if (request.done()) {
        core_.endpoint->wakeups().returns();
        return true;
    }
    core_.waiting.enter();
    if (!core_.manual()) core_.endpoint->wakeups().claimed();
    recall();
    Waited waited;
    const bool done = wait_driving(request, timeout_ms, waited);
    if (waited.drives) core_.waiting.give_driving();
    announce();
    // The program may sleep on what others had announced, and this thread has moved on.
    if (waited.others) core_.endpoint->wakeups().ring();
    if (core_.waiting.leave() && core_.waiting.pending() && !core_.manual())
        core_.endpoint->wakeups().kick();
    core_.endpoint->wakeups().returns();
    if (waited.slept) core_.waiting.rouse();  // others sleep on what this one recalled when it woke
    return done;
}

// With manual progress no other thread moves what is under way on the endpoint's other
// communicators: peers may have to finish that before they come to what this one waits for.
bool ProgressEngine::wait_driving(Request& request, int64_t timeout_ms, Waited& waited) {
    const Deadline limit = Deadline::after_ms(timeout_ms);
    Backoff backoff(core_.oversubscribed);
    bool serves = core_.manual();
    for (;;) {
        bool moved = false;
        drive_all(moved);
        if (request.done()) return true;
        if (timeout_ms == 0) {
            advance();
            return request.wait_published();
        }
        if (serves) {
            serves = core_.endpoint->serve_clients(moved);
            waited.others |= serves;
        }
        if (!moved) core_.endpoint->transports().progress();
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::spin) continue;
        look_at_clocks();
        core_.endpoint->pump();
        serves = core_.manual();
        if (limit.passed()) return request.wait_published();
        if (turn == Backoff::Turn::look) continue;
        const auto most_ms = [&] { return limit.left_ms(core_.endpoint->wakeups().look_ms()); };
        if (!waited.drives)
            waited.drives =
                core_.waiting.drive_or_sleep_beside([&] { return request.done(); }, most_ms());
        if (waited.drives) {
            sleep_until_moved(request, most_ms());
            waited.slept = true;
        }
        backoff.woke();
    }
}

// Announces it, looks once more, sleeps: whatever comes after that look rings. Other threads may
// announce and recall the same: who recalls rouses those that sleep, and who sleeps is counted
// before it announces, so that one of the two sees the other.
void ProgressEngine::sleep_until_moved(const Request& request, int64_t limit_ms) {
    Sleeper::take_moved();
    const uint64_t since = core_.endpoint->wakeups().rounds();
    core_.waiting.fall_asleep();
    bool moved = !arm_all(true);
    if (core_.manual()) moved |= !core_.endpoint->arm_clients(true);
    drive_all(moved);
    if (core_.manual()) core_.endpoint->serve_clients(moved);
    moved |= Sleeper::take_moved();
    if (!moved && !request.done())
        core_.endpoint->wakeups().sleep(static_cast<int>(limit_ms), since);
    if (core_.manual()) core_.endpoint->arm_clients(false);
    arm_all(false);
    core_.waiting.wake_up();
}

bool ProgressEngine::arm(bool on) {
    if (on) {
        look_at_clocks();
        if (core_.waiting.waiters()) return true;
        recall();
        armed_ = true;
        return arm_all(true);
    }
    if (!std::exchange(armed_, false)) return true;
    arm_all(false);
    core_.waiting.rouse();
    return true;
}

// Nobody rings for it: it looks every millisecond.
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
        look_at_clocks();
        core_.endpoint->pump();
        if (core_.manual()) core_.endpoint->serve_clients(moved);
        if (turn == Backoff::Turn::sleep)
            core_.endpoint->wakeups().sleep(1, core_.endpoint->wakeups().rounds());
    }
    finish_call();
}

void ProgressEngine::advance() {
    recall();
    core_.endpoint->pump();
    core_.endpoint->transports().progress();
    look_at_clocks();
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
    core_.waiting.rouse();
}

/// The program goes on, and may come back late.
void ProgressEngine::finish_call() {
    announce();
    core_.endpoint->wakeups().returns();
}

// The program may sleep on the descriptor whenever a call of ours has returned: announced, then
// looked once more, as by who sleeps in here. At other communicators too: what came for them while
// this one was driven has woken nobody, or its doorbell has been answered.
void ProgressEngine::announce() {
    if (!announces_) return;
    recall();
    arm_all(true);
    announced_ = true;
    bool moved = Sleeper::take_moved();
    drive_all(moved);
    core_.endpoint->serve_clients(moved);
    if (moved || Sleeper::take_moved()) core_.endpoint->wakeups().ring();
}

void ProgressEngine::recall() {
    // Every wait comes by: looked at before it is written.
    if (announced_.load(std::memory_order_relaxed) && announced_.exchange(false)) arm_all(false);
}

bool ProgressEngine::drive(bool& moved) {
    if (!core_.waiting.pending() || core_.waiting.waiters()) return false;
    drive_all(moved);
    if (!moved) core_.endpoint->transports().progress();
    return core_.waiting.pending();
}

}  // namespace tutti
