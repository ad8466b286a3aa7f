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
    /// True while this thread is inside a callback. The operation's queue is held meanwhile, so a
    /// call from there that starts or waits for an operation would wait for itself.
    static bool calling_back() { return callbacks_here_ > 0; }

private:
    static Callback closed_hook;
    static constexpr int no_fd = -1;
    static void call(const Callback& callback, Code code);
    // Every call reads it; with this TLS model a read is one load.
    [[gnu::tls_model("initial-exec")]] static inline constinit thread_local int callbacks_here_ = 0;
    std::atomic<Callback*> hook_{nullptr};
    std::atomic<int> fd_{no_fd};
    std::atomic<bool> fired_{false};
    std::atomic<Code> code_{Code::in_progress};
};

struct Request {
    virtual ~Request() = default;
    // Only external requests override these. may_end(): false while ending this request would also
    // end an earlier one.
    virtual bool may_end() { return true; }
    /// True if the request was made for another generation of the ranks' group on devices.
    virtual bool is_outdated(uint64_t current) const { return static_cast<void>(current), false; }
    /// Called when the request is over, before its code is published; afterwards it may be freed.
    virtual void ended() {}

    Plan* plan = nullptr;
    Operation* operation = nullptr;  // of the plan, for these buffers
    const void* in = nullptr;
    void* out = nullptr;
    Tag tag;
    int64_t timeout_ms = 0;
    bool round_robin_stream = false;            // its number chooses its stream
    std::atomic<Code> code{Code::in_progress};  // published last: then the fields below are final
    Error error;
    Completion completion;
    bool external = false;               // a GPU's: runs by itself once released, and is polled
    std::atomic<bool> released{true};    // until then only its issuer touches the operation
    std::shared_ptr<Communicator> keep;  // non-blocking: the communicator outlives the request

    // Only the owner of the stream touches the members below.
    Request* next = nullptr;
    bool started = false, armed = false;
    bool driven_by_issuer = false;  // only the issuing thread, which owns the stream, waits for it
    int64_t began_ns = 0;           // time of the first deadline check
    int64_t stall_ns = 0;           // time of the next inquiry to the other ranks
    int64_t stuck_ns = 0;           // after a loss, time since which nothing has moved; 0: no loss

    /// Pairs with publish(): a thread that sees the code sees the error and the buffers. seq_cst
    /// because this is also a waiting thread's last look before it sleeps: either it sees the code,
    /// or the thread that stores the code sees the sleeper (Waiting::wake_sleepers). On x86 the
    /// load costs no more than an acquire.
    bool done() const { return code.load(std::memory_order_seq_cst) != Code::in_progress; }
    /// The same for a thread that may know of the end from the completion. The completion fires
    /// before the code is stored, because the request may be freed once the code is there. If it
    /// has fired, this spins until the code is stored.
    bool wait_published() const;
};

}  // namespace tutti
