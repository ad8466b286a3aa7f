// The map between a communicator's ranks and the job's.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "schedule/hosts.h"

namespace tutti {

/// A loss without a proof: the accuser got no sign of life from the accused within the heartbeat.
/// It may be wrong: the accused may be alive behind a link that is cut.
struct Accusation {
    Rank accuser = nobody, accused = nobody;
    auto operator<=>(const Accusation&) const = default;
};

/// A communicator's ranks by their rank in the job, and back. The whole job needs no list.
class Group {
public:
    /// The whole job.
    Group(Rank rank, Rank size) : rank_(rank), size_(size) {}
    /// Some of the job's ranks: members[r] is the job's rank of rank r.
    Group(uint32_t id, std::vector<Rank> members, Rank rank)
        : id_(id),
          rank_(rank),
          size_(static_cast<Rank>(members.size())),
          members_(std::move(members)) {
        for (Rank r = 0; r < size_; ++r)
            by_job_.emplace_back(members_[static_cast<std::size_t>(r)], r);
        std::sort(by_job_.begin(), by_job_.end());
    }

    /// Names the communicator to all its members; two that share a member have different ids.
    uint32_t id() const { return id_; }
    Rank rank() const { return rank_; }
    Rank size() const { return size_; }

    /// The map of this group's ranks to hosts; nullptr until it is known.
    const Hosts* hosts() const { return hosts_ ? &*hosts_ : nullptr; }
    void set_hosts(Hosts hosts) { hosts_ = std::move(hosts); }

    Rank in_job(Rank rank) const {
        return members_.empty() || rank == nobody ? rank : members_[static_cast<std::size_t>(rank)];
    }
    /// The member that is that rank of the job, or nobody if it is no member.
    Rank of_job(Rank rank) const {
        if (members_.empty()) return rank;
        const auto found =
            std::lower_bound(by_job_.begin(), by_job_.end(), std::pair{rank, Rank{0}});
        return found != by_job_.end() && found->first == rank ? found->second : nobody;
    }
    /// The member that accuses `accused` (a rank here) if that rank of the job does: itself or, if
    /// it is no member, the first member that can. nobody stays nobody.
    Rank accuser_here(Rank in_job, Rank accused) const {
        const Rank here = of_job(in_job);
        return in_job == nobody || here != nobody ? here : accused == 0 ? 1 : 0;
    }

private:
    std::optional<Hosts> hosts_;
    uint32_t id_ = 0;
    Rank rank_, size_;
    std::vector<Rank> members_;
    std::vector<std::pair<Rank, Rank>> by_job_;  // sorted: (rank in the job, rank here)
};

}  // namespace tutti
