#include "reaper.h"

#include <system_error>
#include <thread>
#include <utility>

#include "callbacks.h"
#include "errors.h"
#include "operation.h"

namespace tutti_torch {
namespace {

thread_local const Reaper* employer = nullptr;

bool ends_the_group(tutti_status status) {
    return status == TUTTI_ERR_PEER_LOST || status == TUTTI_ERR_TIMEOUT ||
           status == TUTTI_ERR_ABORTED || status == TUTTI_ERR_REVOKED;
}

}  // namespace

void Reaper::finish(std::shared_ptr<Operation> operation) {
    {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(operation));
        if (idle_ < queue_.size()) start_thread();
    }
    changed_.notify_all();
}

// If the system has no more threads, the existing ones serve the queue.
void Reaper::start_thread() {
    ++threads_;
    try {
        std::thread([self = shared_from_this()] { self->run(); }).detach();
    } catch (const std::system_error&) {
        --threads_;
    }
}

bool Reaper::runs_here() {
    return employer != nullptr;
}

void Reaper::stop() {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
    // A callback may drop the last reference to the group: a thread cannot wait for itself.
    if (employer == this || callbacks_closed()) return;
    changed_.wait(lock, [this] { return threads_ == 0; });
}

// Keeps the failure that ended the group: later ones only repeat it.
void Reaper::note(const std::exception_ptr& error) {
    bool ended = false;
    try {
        std::rethrow_exception(error);
    } catch (const CallError& failed) {
        ended = ends_the_group(failed.status);
        const std::lock_guard lock(mutex_);
        if (!ends_the_group(noted_)) {
            noted_ = failed.status;
            last_failure_ = error;
        }
    } catch (...) {  // an exception of other code
    }
    if (ended) hooks_.abort.run_once([this] { poll_pending(); });
}

void Reaper::run_abort_hooks() {
    hooks_.abort.run([this] { poll_pending(); });
}

// An operation with a waiter ends there, which may call the program.
void Reaper::poll_pending() {
    for (const auto& operation : in_flight_.pending()) operation->poll_unattended();
}

tutti_status Reaper::ended_by() const {
    const std::lock_guard lock(mutex_);
    return ends_the_group(noted_) ? noted_ : TUTTI_OK;
}

std::exception_ptr Reaper::last_failure() const {
    const std::lock_guard lock(mutex_);
    return last_failure_;
}

void Reaper::forget_failures() {
    const std::lock_guard lock(mutex_);
    owed_ = last_failure_ = nullptr;
    noted_ = TUTTI_OK;
}

void Reaper::owe(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!owed_) owed_ = std::move(error);
}

void Reaper::settle(const std::exception_ptr& error) {
    const std::lock_guard lock(mutex_);
    if (owed_ == error) owed_ = nullptr;
}

std::exception_ptr Reaper::take_deferred_error() {
    const std::lock_guard lock(mutex_);
    return std::exchange(owed_, nullptr);
}

void Reaper::run() {
    employer = this;
    std::unique_lock lock(mutex_);
    // One idle thread is enough for the next operation; the others end.
    while (!queue_.empty() || (!stopping_ && idle_ == 0)) {
        if (queue_.empty()) {
            ++idle_;
            changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
            --idle_;
            continue;
        }
        auto operation = std::move(queue_.front());
        queue_.pop_front();
        lock.unlock();
        operation->wait(std::chrono::milliseconds(0));
        operation.reset();
        lock.lock();
    }
    --threads_;
    changed_.notify_all();
}

}  // namespace tutti_torch
