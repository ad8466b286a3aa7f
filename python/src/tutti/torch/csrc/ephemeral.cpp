#include "ephemeral.h"

#include <algorithm>

#include "operation.h"

namespace tutti_torch {

void EphemeralTimeouts::add(Milliseconds extension) {
    const std::lock_guard lock(mutex_);
    extensions_.push_back({extension, {}});
    any_ = true;
}

EphemeralTimeouts::Milliseconds EphemeralTimeouts::begin(const std::shared_ptr<Operation>& call) {
    if (!any_.load(std::memory_order_relaxed)) return Milliseconds(0);
    poll_first_calls();
    const std::lock_guard lock(mutex_);
    std::erase_if(extensions_, [](const Extension& e) { return e.is_over(); });
    any_ = !extensions_.empty();
    Milliseconds sum(0);
    for (Extension& e : extensions_) {
        sum += e.extension;
        if (!e.has_first) e.first = call;
        e.has_first = true;
    }
    return std::max(sum, Milliseconds(0));
}

void EphemeralTimeouts::poll_first_calls() {
    std::vector<std::shared_ptr<Operation>> first;
    {
        const std::lock_guard lock(mutex_);
        for (const Extension& e : extensions_)
            if (auto call = e.first.lock()) first.push_back(std::move(call));
    }
    for (const auto& call : first) call->poll();
}

// A call that nothing refers to any more is over, or was never issued.
bool EphemeralTimeouts::Extension::is_over() const {
    const auto call = first.lock();
    return has_first && (!call || call->done());
}

}  // namespace tutti_torch
