#include "operation.h"

#include <thread>

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include "errors.h"
#include "reaper.h"

namespace tutti_torch {
namespace {

constexpr std::chrono::microseconds device_poll{50};

// Shared by the requests of one operation: its last request to end gives it to the reaper.
struct Watch {
    std::shared_ptr<Operation> operation;
    std::shared_ptr<Reaper> reaper;
    std::atomic<std::size_t> left;
};

}  // namespace

// It begins far from the counts and the addresses that other backends of the same group use.
uint64_t new_completion_key() {
    static std::atomic<uint64_t> next{uint64_t{1} << 62};
    return next.fetch_add(1, std::memory_order_relaxed);
}

void JointCompletion::count(const std::optional<CallTime>& time, const Hooks& hooks) {
    {
        const std::lock_guard lock(mutex_);
        timed_ = timed_ && time;
        if (timed_) time_ = time_ ? time_->joined(*time) : *time;
        if (--left_ > 0) return;
    }
    hooks.completion.call(key_, timed_ ? std::optional(time_->ms()) : std::nullopt);
}

Operation::Operation(std::string name, std::shared_ptr<Reaper> reaper)
    : name_(std::move(name)), reaper_(std::move(reaper)) {
    if (reaper_->hooks().timing.load(std::memory_order_relaxed)) time_ = CallTime{Clock::now(), {}};
}

// Runs only without requests or after they ended: a dropped Work gives its operation to the reaper.
Operation::~Operation() {
    for (tutti_request*& request : requests_) (void)tutti_wait(&request, -1);
}

void Operation::finish_now() {
    end();
    done_.store(true, std::memory_order_release);
}

bool Operation::poll() {
    if (done()) return true;
    if (gathered_) return false;
    {
        std::unique_lock lock(mutex_);
        if (driven_) return done();
        driven_ = true;
    }
    drive_until({}, true);
    give_back();
    return done();
}

void Operation::poll_unattended() {
    {
        const std::lock_guard lock(mutex_);
        if (driven_ || wanted_) return;
    }
    poll();
}

bool Operation::wait(std::chrono::milliseconds timeout) {
    if (done()) return true;
    check_launched();
    const bool bounded = timeout.count() > 0;
    const auto limit = Clock::now() + timeout;
    {
        std::unique_lock lock(mutex_);
        if (!take_part(lock, limit, bounded)) return done();
    }
    drive_until(limit, bounded);
    give_back();
    return done();
}

// Becomes the driving thread. False: the operation is over, or the time limit passed.
bool Operation::take_part(std::unique_lock<std::mutex>& lock, Clock::time_point limit,
                          bool bounded) {
    const auto free = [&] { return !driven_ || done(); };
    if (!bounded)
        changed_.wait(lock, free);
    else if (!changed_.wait_until(lock, limit, free))
        return false;
    if (done()) return false;
    driven_ = true;
    return true;
}

bool Operation::drive_until(Clock::time_point limit, bool bounded) {
    for (tutti_request*& request : requests_) {
        if (!request) continue;
        int64_t left_ms = -1;
        if (bounded) {
            const auto left =
                std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now()).count();
            left_ms = std::max<int64_t>(left, 0);
        }
        const tutti_status status = tutti_wait(&request, left_ms);
        if (request) return false;
        if (status == TUTTI_OK) continue;
        // tutti accepted this rank's arguments when the call began, so INVALID means that the ranks
        // differ.
        const tutti_status told = status == TUTTI_ERR_INVALID ? TUTTI_ERR_MISMATCH : status;
        const auto failure = last_failure(told, name_, words_about_list(told));
        reaper_->note(failure);
        if (!error_) error_ = failure;
    }
    if (!passed(limit, bounded)) return false;
    end();
    return true;
}

std::string Operation::words_about_list(tutti_status status) const {
    if (listed_ == 0 || status != TUTTI_ERR_MISMATCH) return {};
    return c10::str("; this rank's list has ", listed_,
                    " tensors. What to do: pass lists of the same types and lengths in the same "
                    "order on every rank");
}

// After the requests end, the device may still copy.
bool Operation::passed(Clock::time_point limit, bool bounded) {
    if (!over_) return true;
    try {
        while (!over_->query()) {
            if (bounded && Clock::now() >= limit) return false;
            std::this_thread::sleep_for(device_poll);
        }
    } catch (...) {
        if (!error_) error_ = std::current_exception();
    }
    return true;
}

void Operation::copy_back() {
    // Below autograd, as if the operation itself had written the tensors.
    const at::AutoDispatchBelowADInplaceOrView raw;
    c10::OptionalStreamGuard on;
    if (stream_) on.reset_stream(*stream_);
    for (const auto& [to, from] : copies_) copy_slice(to, from);
}

void Operation::enqueued() {
    gathered_ = false;
    if (!error_) copy_back();
    // Keep the tensors alive, because the device still uses them.
    for (auto& [to, from] : copies_) {
        kept_.push_back(std::move(to.tensor));
        kept_.push_back(std::move(from.tensor));
    }
    copies_.clear();
    over_.emplace(stream_->device_type());
    over_->record(*stream_);
    leave_alone();
}

void Operation::check_launched() const {
    TORCH_CHECK(!gathered_, "tutti ", name_,
                ": its batch was not ended, so that it has not begun. What to do: call "
                "_end_coalescing (or leave the block of _coalescing_manager) before wait()");
}

void Operation::put_before(const c10::Stream& later) const {
    check_launched();
    TORCH_CHECK(over_, "tutti ", name_,
                ": the device failed before this was on its stream. What to do: read the "
                "first error of the device");
    over_->block(later);
}

// Ends the operation after its requests: no other thread drives it now.
void Operation::end() {
    if (!error_ && expected_ && received_.count != *expected_) {
        error_ = short_message();
        reaper_->note(error_);
    }
    if (!error_ && !copies_.empty()) {
        try {
            copy_back();
        } catch (...) {
            error_ = std::current_exception();
        }
    }
    if (time_) time_->end = Clock::now();
    report();
    if (error_ && ordered_) reaper_->owe(error_);
    let_go();
    requests_.clear();
}

uint64_t Operation::key() {
    uint64_t none = 0;
    if (key_ == 0) key_.compare_exchange_strong(none, new_completion_key());
    return key_;
}

// Torch keeps a failed call as one that never completed.
void Operation::report() {
    const Hooks& hooks = reaper_->hooks();
    if (hooks.completion.empty() || error_) return;
    std::shared_ptr<JointCompletion> joint;
    {
        const std::lock_guard lock(mutex_);
        reported_ = true;
        joint = std::move(joint_);
    }
    hooks.completion.call(key(), time_ ? std::optional(time_->ms()) : std::nullopt);
    if (joint) joint->count(time_, hooks);
}

void Operation::count_in(std::shared_ptr<JointCompletion> joint) {
    {
        const std::lock_guard lock(mutex_);
        if (!reported_) {
            joint_ = std::move(joint);
            return;
        }
    }
    joint->count(time_, reaper_->hooks());
}

// The reaper's threads free tensors in a callback, which may take python's lock. They must not
// request it while the interpreter ends; from then on call_back() leaks the tensors.
void Operation::let_go() {
    if (Reaper::runs_here()) {
        std::vector<Callback> dropped;
        dropped.emplace_back([kept = std::move(kept_), copies = std::move(copies_)] {});
        call_back(std::move(dropped));
    }
    copies_.clear();
    kept_.clear();
}

void Operation::heard() const {
    if (error_) reaper_->settle(error_);
}

std::exception_ptr Operation::short_message() const {
    const std::string text =
        c10::str("tutti ", name_, ": rank ", received_.source, " sent ", received_.count,
                 " elements, the tensor to receive them has ", *expected_,
                 ". What to do: pass tensors of one size to send and recv");
    return std::make_exception_ptr(
        CallError(TUTTI_ERR_MISMATCH, received_.source, name_, text, text));
}

// The driving thread leaves: the operation is over, or waits without a driver again.
void Operation::give_back() {
    std::vector<Callback> callbacks;
    bool watch = false;
    {
        const std::lock_guard lock(mutex_);
        if (requests_.empty()) {
            done_.store(true, std::memory_order_release);
            callbacks.swap(callbacks_);
        } else {
            watch = wanted_ && !watched_;
            watched_ = watched_ || wanted_;
        }
        if (!watch) driven_ = false;
    }
    if (watch) {
        watch_requests();
        const std::lock_guard lock(mutex_);
        driven_ = false;
    }
    changed_.notify_all();
    call_back(std::move(callbacks));
}

void Operation::when_done(Callback callback) {
    {
        const std::lock_guard lock(mutex_);
        if (!done()) {
            if (callback) callbacks_.push_back(std::move(callback));
            wanted_ = true;
            callback = nullptr;
            if (driven_ || watched_) return;  // the driver watches when it leaves
            driven_ = true;
        }
    }
    if (!done()) return give_back();
    if (callback) call_back({std::move(callback)});
}

// Only the driving thread calls it, so no other thread frees the requests.
void Operation::watch_requests() {
    auto* watch = new Watch{shared_from_this(), reaper_, 1};
    for (tutti_request* request : requests_) {
        if (!request) continue;
        watch->left.fetch_add(1, std::memory_order_relaxed);
        if (tutti_request_on_complete(request, &Operation::request_over, watch) != TUTTI_OK)
            watch->left.fetch_sub(1, std::memory_order_relaxed);
    }
    request_over(TUTTI_OK, watch);
}

// Runs inside tutti, which must not be called from here: the reaper's thread does the rest.
void Operation::request_over(tutti_status, void* user) {
    auto* watch = static_cast<Watch*>(user);
    if (watch->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    watch->reaper->finish(std::move(watch->operation));
    delete watch;
}

}  // namespace tutti_torch
