// Progress ownership: the flag that says which thread may touch something, the library's one spin
// lock. The holder never sleeps for a peer, so a thread may spin for the flag.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "wait/backoff.h"
#include "wait/pace.h"

namespace tutti {

/// One thread at a time has it. Taking and giving are sequentially consistent: a thread that
/// publishes something and then finds the flag taken knows that the holder looks for it after it
/// has given the flag back.
class OwnerFlag {
public:
    bool taken() const { return taken_.load(std::memory_order_relaxed); }
    bool try_take() { return !taken_.exchange(true, std::memory_order_seq_cst); }
    void take() {
        for (int turn = 0; !try_take(); ++turn) spin_turn(turn);
    }
    /// False: closed for good meanwhile.
    bool take(const std::atomic<bool>& closed) {
        for (int turn = 0; !try_take(); ++turn) {
            if (closed.load(std::memory_order_acquire)) return false;
            spin_turn(turn);
        }
        return true;
    }
    /// False: it was not given until the deadline. For a holder that may keep it for long.
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
    /// Waits for it. A holder keeps it for a pass, or for the many passes of a blocking call
    /// (ProgressEngine::finish_blocking).
    explicit OwnerGuard(OwnerFlag& owner) : owner_(&owner) { owner.take(); }
    /// Takes it only if it is free; then held() is true.
    struct Try {};
    OwnerGuard(OwnerFlag& owner, Try) : owner_(owner.try_take() ? &owner : nullptr) {}
    /// Waits for it until the deadline; then held() says whether that was enough.
    OwnerGuard(OwnerFlag& owner, Deadline deadline)
        : owner_(owner.take(deadline) ? &owner : nullptr) {}
    ~OwnerGuard() { drop(); }
    OwnerGuard(const OwnerGuard&) = delete;

    bool held() const { return owner_ != nullptr; }
    /// It stays taken after this scope: another part of the thread's call gives it.
    void keep() { owner_ = nullptr; }
    void drop() {
        if (owner_) owner_->give();
        owner_ = nullptr;
    }

private:
    OwnerFlag* owner_;
};

}  // namespace tutti
