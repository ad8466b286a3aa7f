// The invariants of a run, and the outcomes of calls that they compare.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/types.h"
#include "simulation/traffic.h"
#include "simulation/verdicts.h"

namespace simulation {

using namespace tutti;

class World;

/// An agreement's or a shrink's outcome on one rank. Ranks are the job's.
struct Outcome {
    Code code = Code::ok;
    Rank culprit = nobody;  // of an agreement that has failed
    uint64_t bits = 0;
    uint32_t id = 0;  // of the smaller communicator; 0: no shrink
    std::vector<Rank> gone;
    int64_t at_ns = 0;
    bool equals(const Outcome& other) const {
        return code == other.code && bits == other.bits && id == other.id && gone == other.gone;
    }
    std::string text() const;
};

class Checks {
public:
    explicit Checks(World& world) : world_(world) {}

    template <typename... Args>
    void fail(fmt::format_string<Args...> text, Args&&... args) {
        add(fmt::format(text, std::forward<Args>(args)...));
    }
    const std::vector<std::string>& broken() const { return broken_; }
    /// Pairs of ranks with different successes, of which one had left: its goodbye with the
    /// decision was lost with a neighbour that had died.
    uint64_t lost_decisions() const { return lost_decisions_; }
    /// Time-outs in a communicator that a rank had left before it died: its last data may have died
    /// with it.
    uint64_t lost_data() const { return lost_data_; }

    Verdicts& verdicts() { return verdicts_; }
    Traffic& traffic() { return traffic_; }
    const Verdicts& verdicts() const { return verdicts_; }

    /// A rank's call has ended with that error; ranks are the communicator's.
    void error(Rank rank, uint32_t comm, const std::vector<Rank>& members, const Error& error);
    /// The outcome of a communicator's n-th agreement call.
    void outcome(Rank rank, uint32_t comm, uint64_t call, const Outcome& outcome);
    /// A call that began at that time must have ended by now.
    void deadline(Rank rank, int64_t began_ns, std::string_view call);
    /// A rank takes another for lost.
    void lost(Rank rank, Rank peer);
    void destroyed(Rank rank, uint32_t comm) {
        left_.insert({comm, rank});
        verdicts_.left(rank, comm);
        traffic_.trouble();
    }
    /// A rank revokes or aborts the communicator.
    void overruled(Rank rank, uint32_t comm, Code code);
    /// A collective of the communicator is under way, which a revoke or an abort must end soon.
    void running(Rank rank, uint32_t comm);
    /// That rank's own abort ends its n-th agreement call, unless the others have decided it.
    void interrupted(Rank rank, uint32_t comm, uint64_t call) {
        interrupted_.insert({comm, call, rank});
    }
    void left_out(uint32_t comm, Rank rank) { left_out_.insert({comm, rank}); }
    void stopped(Rank rank, int64_t for_ns) {
        stopped_ns_[rank] += for_ns;
        traffic_.trouble();
    }
    /// After the last event.
    void end();

private:
    bool is_gone(uint32_t comm, Rank rank) const;
    bool is_overruled(uint32_t comm, Code code) const;
    bool may_be_silent() const;
    /// An abort's error beside the success of ranks that it reached too late.
    bool is_late_success(Rank aborted, const Outcome& error, const Outcome& success) const;
    bool had_left(Rank rank, const Outcome& without) const;
    bool may_lack_data(uint32_t comm) const;
    void add(std::string text);
    void compare(uint32_t comm, uint64_t call, const std::map<Rank, Outcome>& outcomes);

    World& world_;
    Verdicts verdicts_{world_};
    Traffic traffic_{world_};
    std::vector<std::string> broken_;
    std::map<std::pair<uint32_t, uint64_t>, std::map<Rank, Outcome>> outcomes_;
    std::set<std::pair<uint32_t, Rank>> left_, left_out_;
    struct Overruler {
        Rank rank = nobody;
        Code code = Code::ok;
        int64_t at_ns = 0;
    };
    std::map<uint32_t, std::vector<Overruler>> overruled_;
    std::set<std::tuple<uint32_t, uint64_t, Rank>> interrupted_;
    std::map<Rank, int64_t> stopped_ns_;
    uint64_t lost_decisions_ = 0, lost_data_ = 0;
};

}  // namespace simulation
