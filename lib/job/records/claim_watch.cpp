#include "job/records/claim_watch.h"

#include <unistd.h>

#include "base/clock.h"
#include "control/tree.h"

namespace tutti {
namespace {

constexpr int64_t unreplaced_ns = 3'000'000'000;

}  // namespace

ClaimWatch::ClaimWatch(RankOwner self, Rank rank, Rank size) : self_(std::move(self)) {
    const auto watch = [&](Rank other) {
        if (other != rank) watched_.try_emplace(other);
    };
    if (rank == 0) {
        for (Rank other = 1; other < size; ++other) watch(other);
        return;
    }
    for (const Rank other : {Rank{0}, tree_parent(rank), rank - 1, (rank + 1) % size}) watch(other);
}

// The first process that is found alive is the one watched from then on.
bool ClaimWatch::has_ended(Watched& watched, const std::string& claim) const {
    const RankOwner other = RankOwner::decode(claim);
    if (!self_.outlived(other)) {
        if (other.pid > 0) watched.alive = other;  // if not visible here, it never counts as ended
        return false;
    }
    if (other.start_ticks >= self_.start_ticks) return true;
    const auto half_second = static_cast<uint64_t>(::sysconf(_SC_CLK_TCK)) / 2;
    if (other.start_ticks + half_second < self_.start_ticks) return false;
    if (watched.dead == claim) return now_ns() - watched.dead_since_ns > unreplaced_ns;
    watched.dead = claim;
    watched.dead_since_ns = now_ns();
    return false;
}

std::optional<Rank> ClaimWatch::ended(const Look& look) {
    for (auto& [rank, watched] : watched_) {
        if (watched.alive) {
            if (self_.outlived(*watched.alive)) return rank;
        } else if (const auto claim = look(rank); claim && has_ended(watched, *claim)) {
            return rank;
        }
    }
    return std::nullopt;
}

}  // namespace tutti
