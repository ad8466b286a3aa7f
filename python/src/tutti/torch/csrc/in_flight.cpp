#include "in_flight.h"

#include <algorithm>
#include <utility>

#include "operation.h"

namespace tutti_torch {

void InFlight::add(const std::shared_ptr<Operation>& operation) {
    const std::lock_guard lock(mutex_);
    operations_.push_back(operation);
    if (operations_.size() < prune_at_) return;
    std::erase_if(operations_, [](const std::weak_ptr<Operation>& weak) {
        const auto held = weak.lock();
        return !held || held->done();
    });
    prune_at_ = std::max<std::size_t>(64, 2 * operations_.size());
}

std::vector<std::shared_ptr<Operation>> InFlight::pending() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Operation>> found;
    for (const auto& weak : operations_)
        if (auto held = weak.lock(); held && !held->done()) found.push_back(std::move(held));
    return found;
}

}  // namespace tutti_torch
