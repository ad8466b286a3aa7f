// The errors of collectives, and the events that may be their cause.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace simulation {

using namespace tutti;

class World;

/// Every error of a collective must name one of the communicator's causes. So if there is only one
/// cause, all ranks have the same code and name the same rank. Ranks are the job's.
class Verdicts {
public:
    explicit Verdicts(World& world) : world_(world) {}

    /// A rank ends without a goodbye.
    void killed(Rank rank) { killed_.push_back(rank); }
    bool any_killed() const { return !killed_.empty(); }
    /// A rank revokes or aborts the communicator, and knows of no failure that stands.
    void overruled(Rank rank, uint32_t comm, Code code) { causes_[comm].insert({code, rank}); }
    /// The ranks' calls of the communicator differ on purpose.
    void mismatching(uint32_t comm) { causes_[comm].insert(mismatch); }
    void left(Rank rank, uint32_t comm) { left_.insert({comm, rank}); }
    /// A rank leaves the communicator although its program has not made all calls.
    void left_early(Rank rank, uint32_t comm) { left_early_.insert({comm, rank}); }

    /// The others' calls leave the rank out; they may be done with a collective that still runs
    /// there.
    void left_out(Rank rank, uint32_t comm) { left_out_.insert({comm, rank}); }

    /// A collective has failed. due: the ranks' calls differ here on purpose.
    void failed(Rank rank, uint32_t comm, const std::vector<Rank>& members, const Error& error,
                bool due);
    /// After the last event.
    void end();
    /// Collectives that have named a rank which had said goodbye: it was lost on its way.
    uint64_t lost_goodbyes() const { return lost_goodbyes_; }

private:
    using Cause = std::pair<Code, Rank>;
    static constexpr Cause mismatch{Code::mismatch, nobody};
    struct Verdict {
        Rank rank = nobody;
        Cause named;
        bool due = false;
    };
    std::set<Cause> causes_of(uint32_t comm) const;
    void check(uint32_t comm, const std::set<Cause>& causes, const Verdict& verdict);

    World& world_;
    std::vector<Rank> killed_;
    std::map<uint32_t, std::vector<Rank>> members_;
    std::map<uint32_t, std::set<Cause>> causes_;
    std::set<std::pair<uint32_t, Rank>> left_, left_early_, left_out_;
    std::map<uint32_t, std::vector<Verdict>> verdicts_;
    uint64_t lost_goodbyes_ = 0;
};

}  // namespace simulation
