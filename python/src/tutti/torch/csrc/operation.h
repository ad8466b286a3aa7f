// One pending c10d call: its requests, its tensors and its outcome.
#pragma once

#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/util/SmallVector.h>

#include "callbacks.h"
#include "flat.h"

namespace tutti_torch {

class Reaper;
struct Hooks;

/// The time from the beginning of a call until this rank noticed its end.
struct CallTime {
    using Point = std::chrono::steady_clock::time_point;

    float ms() const { return std::chrono::duration<float, std::milli>(end - begin).count(); }
    /// From the earlier beginning until the later end.
    CallTime joined(const CallTime& other) const {
        return {std::min(begin, other.begin), std::max(end, other.end)};
    }

    Point begin, end;
};

/// A number that no other call of this process gets, for completion hooks.
uint64_t new_completion_key();

/// Several operations for which the completion hooks are called once more, when the last is over.
/// If one of them fails, they are not. Any thread.
class JointCompletion {
public:
    JointCompletion(uint64_t key, std::size_t operations) : key_(key), left_(operations) {}
    /// One of the operations is over, and took that time.
    void count(const std::optional<CallTime>& time, const Hooks& hooks);

private:
    const uint64_t key_;
    std::mutex mutex_;
    std::size_t left_;
    bool timed_ = true;
    std::optional<CallTime> time_;
};

/// Requests, the tensors that they read and write, and the copies to make when they are done.
/// Outlives a dropped Work, so that the results still arrive.
///
/// Threads: the issuing thread fills it; then any thread may wait and poll. One thread at a time
/// drives the requests, other threads wait for it.
class Operation : public std::enable_shared_from_this<Operation> {
public:
    Operation(std::string name, std::shared_ptr<Reaper> reaper);
    ~Operation();
    Operation(const Operation&) = delete;

    const std::string& name() const { return name_; }
    /// For the text of an error with that status: the list whose name the call carries, if any.
    std::string words_about_list(tutti_status status) const;

    // ---- for the issuing thread, before any other thread sees it
    void keep(at::Tensor tensor) { kept_.push_back(std::move(tensor)); }
    /// Copies from to to when all requests are done.
    void copy_afterwards(Slice to, Slice from) {
        copies_.push_back({std::move(to), std::move(from)});
    }
    /// The call was planned and not made, so there is nothing to copy.
    void forget_copies() { copies_.clear(); }
    /// The call carries the name of a list of this many tensors; errors give the number.
    void tell_of_list(std::size_t tensors) { listed_ = tensors; }
    void add(tutti_request* request) {
        if (request) requests_.push_back(request);
    }
    /// The status into which a receive writes its sender.
    tutti_recv_status* received() { return &received_; }
    /// A message of another length is an error.
    void expect(std::size_t count) { expected_ = count; }
    /// This rank could not issue all requests: the issued ones must still end.
    void fail(std::exception_ptr error) { error_ = std::move(error); }
    /// Ends a call that was over when it returned.
    void finish_now();
    /// The device makes the copies, on that stream.
    void copy_on(const c10::Stream& stream) { stream_ = stream; }
    /// The whole operation runs in that stream's order.
    void run_on(const c10::Stream& stream) {
        stream_ = stream;
        ordered_ = true;
    }
    /// Its batch is not launched yet: until enqueued(), waiting is refused.
    void gather() { gathered_ = true; }
    /// The requests are on the stream: puts the copies behind them. From now on it ends by itself.
    void enqueued();

    // ---- for any thread
    bool done() const { return done_.load(std::memory_order_acquire); }
    /// Makes progress; true when the operation is over.
    bool poll();
    /// The same, unless another thread or a callback waits for its end.
    void poll_unattended();
    /// False if it is not over after the time-out; 0 waits for the operation's own deadline.
    bool wait(std::chrono::milliseconds timeout);
    /// Valid only once done().
    const std::exception_ptr& error() const { return error_; }
    const tutti_recv_status& source() const { return received_; }
    /// Valid only once done(); none if the group's calls were not timed when this one began.
    const std::optional<CallTime>& time() const { return time_; }
    /// For completion hooks.
    uint64_t key();
    /// Counts in `joint` once it is over, at once if it is over already.
    void count_in(std::shared_ptr<JointCompletion> joint);
    /// Calls back once it is over, on the thread that ends it; at once if it is over already. From
    /// then on it ends without a waiter.
    void when_done(Callback callback);
    /// Whether a stream orders it: then the device waits, and the host need not.
    bool ordered() const { return ordered_; }
    const std::optional<c10::Stream>& stream() const { return stream_; }
    /// Later work on that stream of the same device waits for this operation.
    void put_before(const c10::Stream& later) const;
    /// Call it once done(): a caller has seen its failure.
    void heard() const;
    /// No caller will wait for it any more: it ends by itself.
    void leave_alone() { when_done(nullptr); }

private:
    using Clock = std::chrono::steady_clock;
    struct Copy {
        Slice to, from;
    };

    bool drive_until(Clock::time_point limit, bool bounded);
    bool take_part(std::unique_lock<std::mutex>& lock, Clock::time_point limit, bool bounded);
    void give_back();
    void watch_requests();
    bool passed(Clock::time_point limit, bool bounded);
    void copy_back();
    void end();
    void report();
    void let_go();
    std::exception_ptr short_message() const;
    void check_launched() const;
    static void request_over(tutti_status status, void* user);

    const std::string name_;
    std::shared_ptr<Reaper> reaper_;
    c10::SmallVector<tutti_request*, 2> requests_;
    std::vector<at::Tensor> kept_;
    std::vector<Copy> copies_;
    std::size_t listed_ = 0;  // tensors of its list; 0: none
    tutti_recv_status received_{-1, -1, 0};
    std::optional<std::size_t> expected_;
    std::exception_ptr error_;
    std::optional<CallTime> time_;
    std::optional<c10::Stream> stream_;
    std::optional<c10::Event> over_;  // on the stream, behind everything
    bool ordered_ = false;
    std::atomic<uint64_t> key_{0};  // 0: nothing has asked for it
    std::atomic<bool> gathered_{false};
    std::atomic<bool> done_{false};

    std::mutex mutex_;
    std::condition_variable changed_;
    bool driven_ = false;    // a thread is inside tutti with these requests
    bool watched_ = false;   // the reaper gets the operation when they are over
    bool wanted_ = false;    // a caller wants it to end without a waiter
    bool reported_ = false;  // the completion hooks know that it is over
    std::shared_ptr<JointCompletion> joint_;
    std::vector<Callback> callbacks_;
};

}  // namespace tutti_torch
