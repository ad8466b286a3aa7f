#include "job/connecting/detours.h"

namespace tutti {

bool Detours::add_behind_others(Rank to, Bytes& message) {
    const std::lock_guard lock(mutex_);
    return queue_.add_behind_others(to, message);
}

void Detours::add(Rank to, Bytes message) {
    {
        const std::lock_guard lock(mutex_);
        if (!queue_.add(to, std::move(message))) return;
    }
    wake_();
}

void Detours::request(Rank to) {
    {
        const std::lock_guard lock(mutex_);
        queue_.request(to);
    }
    wake_();
}

Rank Detours::next() {
    const std::lock_guard lock(mutex_);
    return queue_.next();
}

// Sends with the mutex held, so that no new message overtakes the waiting ones.
void Detours::opened(Rank to, ControlLinks& links) {
    const std::lock_guard lock(mutex_);
    for (const Bytes& message : queue_.take(to)) links.send(to, message);
}

void Detours::close(Rank to) {
    const std::lock_guard lock(mutex_);
    queue_.close(to);
}

}  // namespace tutti
