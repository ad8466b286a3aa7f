// Holding a stream's owner word for a scope.
#pragma once

#include <sched.h>
#include <unistd.h>

#include <atomic>

#include "base/clock.h"

namespace tutti {

class Owned {
public:
    /// Waits for it. A holder keeps it for a pass, or for the many passes of a blocking call
    /// (ProgressEngine::finish_blocking): then the core is given to others.
    explicit Owned(std::atomic<bool>& owner) : owner_(&owner) {
        for (int looks = 0; owner.exchange(true, std::memory_order_seq_cst); ++looks)
            looks < spinning_looks ? cpu_relax() : static_cast<void>(sched_yield());
    }
    /// Takes it only if it is free; then held() is true.
    struct Try {};
    Owned(std::atomic<bool>& owner, Try)
        : owner_(owner.exchange(true, std::memory_order_seq_cst) ? nullptr : &owner) {}
    /// Waits for it until the deadline; then held() says whether that was enough.
    Owned(std::atomic<bool>& owner, Deadline deadline) : Owned(owner, Try{}) {
        while (!held() && !deadline.passed()) {
            ::usleep(look_again_us);
            if (!owner.exchange(true, std::memory_order_seq_cst)) owner_ = &owner;
        }
    }
    ~Owned() { drop(); }
    Owned(const Owned&) = delete;

    bool held() const { return owner_ != nullptr; }
    /// Stays held after this scope: someone else will release it.
    void keep() { owner_ = nullptr; }
    void drop() {
        if (owner_) owner_->store(false, std::memory_order_seq_cst);
        owner_ = nullptr;
    }

private:
    static constexpr int spinning_looks = 1000;
    static constexpr useconds_t look_again_us = 50;
    std::atomic<bool>* owner_;
};

}  // namespace tutti
