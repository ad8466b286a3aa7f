// The operations of a group that may still be pending.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

namespace tutti_torch {

class Operation;

/// Does not keep the operations alive. Any thread.
class InFlight {
public:
    void add(const std::shared_ptr<Operation>& operation);
    std::vector<std::shared_ptr<Operation>> pending() const;

private:
    mutable std::mutex mutex_;
    std::vector<std::weak_ptr<Operation>> operations_;
    std::size_t prune_at_ = 64;
};

}  // namespace tutti_torch
