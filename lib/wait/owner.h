// OwnerFlag, the library's one spin lock (progress ownership): the thread that holds it may drive a
// stream, or be inside a transport's engine. The holder never sleeps to wait for a peer, so another
// thread may spin for the flag.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "wait/backoff.h"
#include "wait/pace.h"

namespace tutti {

/// One thread at a time holds the flag. Taking and giving are sequentially consistent, so a thread
/// can leave work to the holder: it publishes the work and then calls try_take(). If that fails,
/// the holder has not given the flag back yet, and it looks for published work after give().
class OwnerFlag {
public:
    bool taken() const { return taken_.load(std::memory_order_relaxed); }
    bool try_take() { return !taken_.exchange(true, std::memory_order_seq_cst); }
    void take() {
        for (int turn = 0; !try_take(); ++turn) spin_turn(turn);
    }
    /// The same, but returns false once `closed` is set: then the holder keeps the flag for good.
    bool take(const std::atomic<bool>& closed) {
        for (int turn = 0; !try_take(); ++turn) {
            if (closed.load(std::memory_order_acquire)) return false;
            spin_turn(turn);
        }
        return true;
    }
    /// Sleeps between tries, for a holder that may keep the flag for long (the program's callback
    /// runs in it). False: the deadline has passed.
    bool take(Deadline deadline) {
        Pace pace(deadline, {.sleep_us = 50});
        while (!try_take())
            if (!pace.pause()) return false;
        return true;
    }
    void give() { taken_.store(false, std::memory_order_seq_cst); }

private:
    std::atomic<bool> taken_{false};
};

/// Holds a flag for a scope.
class OwnerGuard {
public:
    /// Spins for the flag. A holder keeps it for one pass over a stream, or for the bounded number
    /// of passes with which a blocking call begins (ProgressEngine::finish_blocking).
    explicit OwnerGuard(OwnerFlag& owner) : owner_(&owner) { owner.take(); }
    /// Takes it only if it is free; then held() is true.
    struct Try {};
    OwnerGuard(OwnerFlag& owner, Try) : owner_(owner.try_take() ? &owner : nullptr) {}
    /// Waits for the flag at most until the deadline; held() says whether this thread has it.
    OwnerGuard(OwnerFlag& owner, Deadline deadline)
        : owner_(owner.take(deadline) ? &owner : nullptr) {}
    ~OwnerGuard() { drop(); }
    OwnerGuard(const OwnerGuard&) = delete;

    bool held() const { return owner_ != nullptr; }
    /// The flag stays taken after this scope: a later part of the same call gives it back
    /// (Streams::release).
    void keep() { owner_ = nullptr; }
    void drop() {
        if (owner_) owner_->give();
        owner_ = nullptr;
    }

private:
    OwnerFlag* owner_;
};

}  // namespace tutti
