// Moving what was issued, and waiting for it.
#include <utility>

#include "comm/communicator.h"
#include "transport/posted/flow.h"
#include "wait/backoff.h"

namespace tutti {
namespace {

// Passes of a blocking call that do nothing but drive its own stream: small operations end in them.
constexpr int tight_passes = 1000;

}  // namespace

Result<> Communicator::finish_blocking(Request& request) {
    Stream& stream = streams_[request.plan->stream];
    const int passes = oversubscribed_ ? 1 : tight_passes;
    request.driven_by_issuer = true;
    for (int pass = 0; pass < passes; ++pass) {
        bool moved = false;
        streams_.drive(stream, moved);
        if (request.done()) break;
        if (!moved) endpoint_->progress();
    }
    if (!request.done()) request.driven_by_issuer = false;
    streams_.release(stream);
    if (request.done())
        finish_call();
    else
        wait(request, -1);
    if (request.code.load(std::memory_order_acquire) == Code::ok) return {};
    return tl::unexpected(std::move(request.error));
}

bool Communicator::drive_all(bool& moved) {
    const bool busy = streams_.drive_all(moved);
    return busy | transfers_.drive(moved);
}

void Communicator::look_at_clocks() {
    agreement_.look_at_unreachable();
    streams_.look_at_clocks();
    transfers_.look_at_clocks();
}

bool Communicator::arm_all(bool on) {
    if (on) endpoint_->before_sleep();
    const bool streams = streams_.arm(on);
    return transfers_.arm(on) && streams;
}

bool Communicator::wait(Request& request, int64_t timeout_ms) {
    if (request.done()) {
        endpoint_->returns();
        return true;
    }
    waiting_.enter();
    if (!manual()) endpoint_->claimed();
    recall();
    Waited waited;
    const bool done = wait_driving(request, timeout_ms, waited);
    if (waited.drives) waiting_.give_driving();
    announce();
    // The program may sleep on what others had announced, and this thread has moved on.
    if (waited.others) endpoint_->ring();
    if (waiting_.leave() && waiting_.pending() && !manual()) endpoint_->kick();
    endpoint_->returns();
    if (waited.slept) waiting_.rouse();  // others sleep on what this one recalled when it woke
    return done;
}

// With manual progress no other thread moves what is under way on the endpoint's other
// communicators: peers may have to finish that before they come to what this one waits for.
bool Communicator::wait_driving(Request& request, int64_t timeout_ms, Waited& waited) {
    const Deadline limit = Deadline::after_ms(timeout_ms);
    Backoff backoff(oversubscribed_);
    bool serves = manual();
    for (;;) {
        bool moved = false;
        drive_all(moved);
        if (request.done()) return true;
        if (timeout_ms == 0) {
            progress();
            return request.wait_published();
        }
        if (serves) {
            serves = endpoint_->serve_clients(moved);
            waited.others |= serves;
        }
        if (!moved) endpoint_->progress();
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::spin) continue;
        look_at_clocks();
        endpoint_->pump();
        serves = manual();
        if (limit.passed()) return request.wait_published();
        if (turn == Backoff::Turn::look) continue;
        const auto most_ms = [&] { return limit.left_ms(endpoint_->look_ms()); };
        if (!waited.drives) waited.drives = waiting_.sleep_beside_driver(request, most_ms());
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
void Communicator::sleep_until_moved(const Request& request, int64_t limit_ms) {
    Sleeper::take_moved();
    const uint64_t since = endpoint_->rounds();
    waiting_.fall_asleep();
    bool moved = !arm_all(true);
    if (manual()) moved |= !endpoint_->arm_clients(true);
    drive_all(moved);
    if (manual()) endpoint_->serve_clients(moved);
    moved |= Sleeper::take_moved();
    if (!moved && !request.done()) endpoint_->sleep(static_cast<int>(limit_ms), since);
    if (manual()) endpoint_->arm_clients(false);
    arm_all(false);
    waiting_.wake_up();
}

// The service thread's, or that of a program without one that waits for another communicator.
// Threads that wait announce what is theirs; the last of them kicks the service thread.
bool Communicator::arm(bool on) {
    if (on) {
        look_at_clocks();
        if (waiting_.waiters()) return true;
        recall();
        armed_ = true;
        return arm_all(true);
    }
    if (!std::exchange(armed_, false)) return true;
    arm_all(false);
    waiting_.rouse();
    return true;
}

// Nobody rings for it: it looks every millisecond.
void Communicator::wait_for_last_run(const Plan& plan) {
    if (!plan.busy_anywhere()) return;
    recall();
    Backoff backoff(oversubscribed_);
    while (plan.busy_anywhere()) {
        bool moved = false;
        drive_all(moved);
        if (!moved) endpoint_->progress();
        const Backoff::Turn turn = backoff.next(moved);
        if (turn == Backoff::Turn::spin) continue;
        look_at_clocks();
        endpoint_->pump();
        if (manual()) endpoint_->serve_clients(moved);
        if (turn == Backoff::Turn::sleep) endpoint_->sleep(1, endpoint_->rounds());
    }
    finish_call();
}

void Communicator::progress() {
    recall();
    endpoint_->pump();
    endpoint_->progress();
    look_at_clocks();
    bool moved = false;
    drive_all(moved);
    finish_call();
}

int Communicator::progress_fd() {
    announces_ = true;
    announce();
    return endpoint_->wait_fd();
}

/// What was issued and is not done is another's now: the service thread's, or of a thread that
/// sleeps, which has not announced itself there.
void Communicator::hand_over() {
    manual() ? announce() : endpoint_->issued();
    endpoint_->returns();
    waiting_.rouse();
}

/// The program goes on, and may come back late.
void Communicator::finish_call() {
    announce();
    endpoint_->returns();
}

// The program may sleep on the descriptor whenever a call of ours has returned: announced, then
// looked once more, as by who sleeps in here. At other communicators too: what came for them while
// this one was driven has woken nobody, or its doorbell has been answered.
void Communicator::announce() {
    if (!announces_) return;
    recall();
    arm_all(true);
    announced_ = true;
    bool moved = Sleeper::take_moved();
    drive_all(moved);
    endpoint_->serve_clients(moved);
    if (moved || Sleeper::take_moved()) endpoint_->ring();
}

void Communicator::recall() {
    // Every wait comes by: looked at before it is written.
    if (announced_.load(std::memory_order_relaxed) && announced_.exchange(false)) arm_all(false);
}

// As arm(): non-blocking operations while no thread of the program waits for them.
bool Communicator::drive(bool& moved) {
    if (!waiting_.pending() || waiting_.waiters()) return false;
    drive_all(moved);
    if (!moved) endpoint_->progress();
    return waiting_.pending();
}

}  // namespace tutti
