#include "simulation/verdicts.h"

#include <algorithm>

#include "simulation/rank.h"
#include "simulation/world.h"

namespace simulation {

void Verdicts::failed(Rank rank, uint32_t comm, const std::vector<Rank>& members,
                      const Error& error, bool due) {
    if (world_.rank(rank).is_dead()) return;
    members_[comm] = members;
    const bool names = error.rank != nobody && error.code != Code::mismatch;
    const Rank named = names ? members[static_cast<std::size_t>(error.rank)] : nobody;
    verdicts_[comm].push_back({rank, {error.code, named}, due});
}

std::set<Verdicts::Cause> Verdicts::causes_of(uint32_t comm) const {
    std::set<Cause> causes;
    if (const auto found = causes_.find(comm); found != causes_.end()) causes = found->second;
    const std::vector<Rank>& members = members_.at(comm);
    for (const Rank rank : killed_)
        if (std::find(members.begin(), members.end(), rank) != members.end())
            causes.insert({Code::peer_lost, rank});
    return causes;
}

void Verdicts::check(uint32_t comm, const std::set<Cause>& causes, const Verdict& verdict) {
    const auto [code, named] = verdict.named;
    if (code == Code::peer_lost && left_early_.count({comm, named}) > 0) return;
    if (code == Code::revoked && left_out_.count({comm, verdict.rank}) > 0) return;
    // Another failure may end the calls of some ranks only, so that later calls differ.
    const bool is_excused = verdict.due || causes.size() > 1;
    const bool is_cause = causes.count(verdict.named) > 0;
    if (is_cause && (code != Code::mismatch || is_excused)) return;
    // Ranks that died, or left at once after a mismatch, did not pass its goodbye on.
    if (code == Code::peer_lost && !causes.empty() && left_.count({comm, named}) > 0) {
        ++lost_goodbyes_;
        return;
    }
    world_.checks().fail(
        "rank {}: a collective of communicator {} ends with {} (rank {}), which is no cause",
        verdict.rank, comm, code_name(code), named);
}

// If a rank is slow, any deadline may pass.
void Verdicts::end() {
    if (world_.scenario().is_slow()) return;
    for (const auto& [comm, verdicts] : verdicts_) {
        const std::set<Cause> causes = causes_of(comm);
        for (const Verdict& verdict : verdicts)
            if (verdict.named.first != Code::timeout) check(comm, causes, verdict);
    }
}

}  // namespace simulation
