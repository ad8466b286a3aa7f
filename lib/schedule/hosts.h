// The distribution of ranks over hosts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"

namespace tutti {

/// Summary of the hosts' sizes, on which a choice of algorithms may depend. All 0: unknown.
struct HostShape {
    Rank hosts = 0;
    Rank smallest = 0, largest = 0;  // ranks of a host
};

/// Every rank's host. Hosts are numbered by their lowest rank; a host's ranks are in ascending
/// order. A value type. Equal blocks of neighbours (the last one may be smaller) take O(1) memory,
/// any other distribution 12 bytes per rank and 4 per host. Every function takes O(1).
class Hosts {
public:
    /// Rank r on host r / per_host. Both at least 1.
    static Hosts in_blocks(Rank ranks, Rank per_host);
    /// Ranks with equal labels share a host; at least one rank. O(p log p).
    static Hosts by_label(std::span<const uint64_t> labels);

    Rank ranks() const { return ranks_; }
    Rank count() const { return shape_.hosts; }
    const HostShape& shape() const { return shape_; }

    Rank host_of(Rank rank) const { return block_ ? rank / block_ : host_[index(rank)]; }
    /// The rank's number among the ranks of its host.
    Rank local_of(Rank rank) const { return block_ ? rank % block_ : local_[index(rank)]; }
    /// The number of ranks on all hosts of lower numbers.
    Rank before(Rank host) const { return block_ ? host * block_ : before_[index(host)]; }
    Rank size_of(Rank host) const {
        return (host + 1 < count() ? before(host + 1) : ranks_) - before(host);
    }
    Rank member(Rank host, Rank local) const { return in_order(before(host) + local); }
    /// The i-th rank, host after host.
    Rank in_order(Rank i) const { return block_ ? i : member_[index(i)]; }
    /// The rank that exchanges this stripe of the data with other hosts, on behalf of its host.
    Rank carrier(Rank host, Rank stripe) const { return member(host, stripe % size_of(host)); }

private:
    static std::size_t index(Rank i) { return static_cast<std::size_t>(i); }

    Rank ranks_ = 1;
    Rank block_ = 1;  // 0: uses the lists below
    HostShape shape_;
    std::vector<Rank> host_, local_;  // by rank
    std::vector<Rank> before_;        // by host
    std::vector<Rank> member_;        // host after host
};

}  // namespace tutti
