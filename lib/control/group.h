// The map between a communicator's ranks and the job's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "schedule/hosts.h"

namespace tutti {

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
    /// nobody if that rank of the job is no member.
    Rank of_job(Rank rank) const {
        if (members_.empty()) return rank;
        const auto found =
            std::lower_bound(by_job_.begin(), by_job_.end(), std::pair{rank, Rank{0}});
        return found != by_job_.end() && found->first == rank ? found->second : nobody;
    }

private:
    std::optional<Hosts> hosts_;
    uint32_t id_ = 0;
    Rank rank_, size_;
    std::vector<Rank> members_;
    std::vector<std::pair<Rank, Rank>> by_job_;  // sorted: (rank in the job, rank here)
};

}  // namespace tutti
