// An operation under way, blocking or not.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/result.h"
#include "plan/plan.h"

namespace tutti {

class Communicator;

/// A request's callback and eventfd; fire() triggers each at most once. No lock is needed: the
/// callback's slot goes from empty to set to closed, or from empty to closed.
class Completion {
public:
    using Callback = std::function<void(Code code)>;

    Completion() = default;
    Completion(const Completion&) = delete;
    ~Completion();

    /// False if there is a callback already. Calls back at once if the request is done.
    bool set_callback(Callback callback);
    /// An eventfd that is readable once the request is done; the same one every time.
    Result<int> event_fd();
    void fire(Code code);
    /// The callback has run, and the descriptor is readable or about to be.
    bool fired() const { return fired_.load(); }
    /// Whether this thread is inside a callback. The operation's queue is held meanwhile, so a call
    /// from there that starts or waits for something would wait for itself.
    static bool calling_back() { return callbacks_here_ > 0; }

private:
    static Callback closed_hook;
    static constexpr int no_fd = -1;
    static void call(const Callback& callback, Code code);
    // Every call looks at it: in the model that costs one load.
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int callbacks_here_ = 0;
    std::atomic<Callback*> hook_{nullptr};
    std::atomic<int> fd_{no_fd};
    std::atomic<bool> fired_{false};
    std::atomic<Code> code_{Code::in_progress};
};

struct Request {
    virtual ~Request() = default;
    // Only external requests have these. may_end: false while the request's end would take an
    // earlier one with it.
    virtual bool may_end() { return true; }
    /// Whether it was made for another generation of the ranks' group on devices.
    virtual bool is_outdated(uint64_t current) const { return static_cast<void>(current), false; }
    /// It is over, and may be gone once its code is published.
    virtual void ended() {}

    Plan* plan = nullptr;
    Operation* operation = nullptr;  // of the plan, for these buffers
    const void* in = nullptr;
    void* out = nullptr;
    Tag tag;
    int64_t timeout_ms = 0;
    bool round_robin_stream = false;            // its stream is its number's
    std::atomic<Code> code{Code::in_progress};  // published last: then the fields below are final
    Error error;
    Completion completion;
    bool external = false;               // a GPU's: works by itself once released, and is polled
    std::atomic<bool> released{true};    // until then only its issuer touches the operation
    std::shared_ptr<Communicator> keep;  // non-blocking: the communicator outlives the request

    // Owned by whoever owns the stream.
    Request* next = nullptr;
    bool started = false, armed = false;
    bool driven_by_issuer = false;  // by its issuer, who keeps the stream: nobody else waits for it
    int64_t began_ns = 0;           // when a waiter first looked at the clock
    int64_t stall_ns = 0;           // when to ask again what the others are doing
    int64_t stuck_ns = 0;           // after a loss, since when nothing has moved; 0: it moves

    bool done() const { return code.load(std::memory_order_acquire) != Code::in_progress; }
    /// The same for who may have heard of it by its completion: that fires first, as the request
    /// may be gone once the code is there. Waits for the code where it has fired.
    bool wait_published() const;
};

}  // namespace tutti
