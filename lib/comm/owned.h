// Holding a stream's owner word for a scope.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace tutti {

class Owned {
public:
    /// Waits for it: holders keep it for a pass, not for an operation.
    explicit Owned(std::atomic<bool>& owner) : owner_(&owner) {
        while (owner.exchange(true, std::memory_order_seq_cst)) cpu_relax();
    }
    /// Takes it only if it is free; then held() is true.
    struct Try {};
    Owned(std::atomic<bool>& owner, Try)
        : owner_(owner.exchange(true, std::memory_order_seq_cst) ? nullptr : &owner) {}
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
    std::atomic<bool>* owner_;
};

}  // namespace tutti
