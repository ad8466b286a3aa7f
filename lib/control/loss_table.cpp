#include "control/loss_table.h"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr int most_ended_detours = 3;  // per peer, after which it is not called again

}  // namespace

bool LossTable::mark_lost(Rank peer, std::string cause) {
    return left_.count(peer) == 0 && lost_.emplace(peer, std::move(cause)).second;
}

bool LossTable::accuse(Accusation one, std::string cause) {
    const auto is_known_gone = [&](Rank rank) { return left_.count(rank) + lost_.count(rank) > 0; };
    if (left_.count(one.accused) > 0 || is_known_gone(one.accuser)) return false;
    const bool is_proven = lost_.count(one.accused) > 0 && !is_accused(one.accused);
    if (is_proven || !accusations_.emplace(one, cause).second) return false;
    lost_.emplace(one.accused, std::move(cause));
    return true;
}

bool LossTable::is_accused(Rank rank) const {
    return std::any_of(accusations_.begin(), accusations_.end(),
                       [&](const auto& entry) { return entry.first.accused == rank; });
}

bool LossTable::detour_ended(Rank peer) {
    return !is_gone(peer) && ++ended_detours_[peer] <= most_ended_detours;
}

bool LossTable::is_gone(Rank peer) const {
    return left_.count(peer) > 0 || lost_.count(peer) > 0 || unreachable_.count(peer) > 0;
}

Rank LossTable::next_rank() const {
    Rank next = rank_;
    do next = (next + 1) % size_;
    while (next != rank_ && (cut_off_.count(next) > 0 || is_gone(next)));
    return next == rank_ ? nobody : next;
}

LossTable::ForNext LossTable::for_next(Rank lost) {
    ForNext tell;
    if (lost_.empty()) return tell;
    tell.next = next_rank();
    if (tell.next == nobody) return tell;
    const bool all = std::exchange(told_, tell.next) != tell.next;
    for (const auto& [peer, cause] : lost_)
        if (all || peer == lost) tell.lost.push_back(peer);
    return tell;
}

const std::set<Rank>& LossTable::not_waited_for() {
    for (const auto& [rank, cause] : lost_) not_waited_for_.insert(rank);
    return not_waited_for_;
}

}  // namespace tutti
