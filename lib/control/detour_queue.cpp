#include "control/detour_queue.h"

#include <utility>

namespace tutti {

bool DetourQueue::add_behind_others(Rank to, Bytes& message) {
    const auto others = waiting_.find(to);
    if (others == waiting_.end()) return false;
    others->second.push_back(std::move(message));
    return true;
}

bool DetourQueue::add(Rank to, Bytes message) {
    if (closed_.count(to) > 0) return false;
    waiting_[to].push_back(std::move(message));
    return true;
}

std::vector<Bytes> DetourQueue::take(Rank to) {
    const auto taken = waiting_.extract(to);
    return taken ? std::move(taken.mapped()) : std::vector<Bytes>{};
}

void DetourQueue::close(Rank to) {
    closed_.insert(to);
    waiting_.erase(to);
}

}  // namespace tutti
