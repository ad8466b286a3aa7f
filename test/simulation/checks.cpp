#include "simulation/checks.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "simulation/rank.h"
#include "simulation/world.h"

namespace simulation {
namespace {

// A waiting thread looks at its clocks every 10 ms, and makes its part without looking.
constexpr int64_t slack_ns = 500 * ms;
// After a revoke or an abort: hops of the control tree, perhaps around ranks that die meanwhile.
constexpr int64_t spread_ns = 3000 * ms;
constexpr std::size_t most_named = 20;  // broken invariants of one run

}  // namespace

std::string Outcome::text() const {
    return fmt::format("{}{} bits {:x} id {:x} gone [{}]", code_name(code),
                       culprit == nobody ? "" : fmt::format(" (rank {})", culprit), bits, id,
                       fmt::join(gone, " "));
}

void Checks::add(std::string text) {
    world_.note("BROKEN: {}", text);
    if (broken_.size() < most_named) broken_.push_back(std::move(text));
}

bool Checks::is_gone(uint32_t comm, Rank rank) const {
    return !world_.rank(rank).is_alive() || world_.rank(rank).is_leaving() ||
           left_.count({comm, rank}) > 0;
}

bool Checks::is_overruled(uint32_t comm, Code code) const {
    const auto found = overruled_.find(comm);
    return found != overruled_.end() &&
           std::any_of(found->second.begin(), found->second.end(),
                       [&](const Overruler& one) { return one.code == code; });
}

void Checks::overruled(Rank rank, uint32_t comm, Code code) {
    overruled_[comm].push_back({rank, code, world_.now()});
}

// The revoke of a rank that has ended since may be lost with it.
void Checks::running(Rank rank, uint32_t comm) {
    const auto found = overruled_.find(comm);
    if (found == overruled_.end() || world_.scenario().is_slow() || world_.rank(rank).is_dead())
        return;
    for (const Overruler& one : found->second)
        if (!is_gone(comm, one.rank) && world_.now() - one.at_ns > spread_ns)
            return fail("rank {}: a collective of communicator {} goes on although rank {} has {}",
                        rank, comm, one.rank, code_name(one.code));
}

// With a heartbeat a rank that is stopped or cut off counts as lost although it is alive.
bool Checks::may_be_silent() const {
    return world_.scenario().heartbeat_ms > 0 && world_.scenario().is_slow();
}

void Checks::error(Rank rank, uint32_t comm, const std::vector<Rank>& members, const Error& error) {
    const Rank named =
        error.rank == nobody ? nobody : members[static_cast<std::size_t>(error.rank)];
    const bool slow = world_.scenario().is_slow();
    switch (error.code) {
        case Code::peer_lost:
            if (named != nobody && !is_gone(comm, named) && left_out_.count({comm, named}) == 0 &&
                !may_be_silent())
                fail("rank {} takes rank {} for lost, which is alive: {}", rank, named,
                     error.message);
            return;
        case Code::timeout:
            if (may_lack_data(comm))
                ++lost_data_;
            else if (!slow && (named == nobody || !world_.rank(named).is_dead()))
                fail("rank {} times out although no rank is slow: {}", rank, error.message);
            return;
        case Code::revoked:
            if (!is_overruled(comm, error.code) && left_out_.count({comm, rank}) == 0)
                fail("rank {}: communicator {} is revoked, but by no rank: {}", rank, comm,
                     error.message);
            return;
        case Code::aborted:
            if (!is_overruled(comm, error.code))
                fail("rank {}: communicator {} is aborted, but by no rank: {}", rank, comm,
                     error.message);
            return;
        case Code::mismatch:
        case Code::no_memory:
            return;
        case Code::system:
            // A member that others accuse while the parts are made makes no part of its own.
            if (world_.scenario().bad_parts_percent == 0 && !may_be_silent())
                fail("rank {}: {}: {}", rank, code_name(error.code), error.message);
            return;
        default:
            fail("rank {}: {}: {}", rank, code_name(error.code), error.message);
    }
}

void Checks::outcome(Rank rank, uint32_t comm, uint64_t call, const Outcome& outcome) {
    if (world_.rank(rank).is_dead()) return;
    Outcome& kept = outcomes_[{comm, call}][rank] = outcome;
    kept.at_ns = world_.now();
    if (outcome.code != Code::ok) return;
    for (const Rank gone : outcome.gone)
        if (!is_gone(comm, gone) && left_out_.count({comm, gone}) == 0 && !may_be_silent())
            fail("rank {}: call {} of communicator {} excludes rank {}, which is alive", rank, call,
                 comm, gone);
    if (std::find(outcome.gone.begin(), outcome.gone.end(), rank) != outcome.gone.end())
        fail("rank {}: call {} of communicator {} succeeds without it", rank, call, comm);
}

void Checks::deadline(Rank rank, int64_t began_ns, std::string_view call) {
    const auto stopped = stopped_ns_.find(rank);
    const int64_t excused = stopped == stopped_ns_.end() ? 0 : stopped->second;
    const int64_t waited = world_.now() - began_ns;
    if (waited > world_.scenario().timeout_ms * ms + slack_ns + excused)
        fail("rank {}: {} hangs: it has taken {} ms", rank, call, waited / ms);
}

void Checks::lost(Rank rank, Rank peer) {
    if (world_.rank(peer).is_alive() && !world_.rank(peer).is_leaving() && !may_be_silent())
        fail("rank {} takes rank {} for lost, which is alive", rank, peer);
}

bool Checks::may_lack_data(uint32_t comm) const {
    return std::any_of(left_.begin(), left_.end(), [&](const auto& left) {
        return left.first == comm && world_.rank(left.second).is_dead();
    });
}

// The rank began to leave in order before the others had that outcome, which excludes it: it names
// the rank, or is the error of a part that could not be made, which names none.
bool Checks::had_left(Rank rank, const Outcome& without) const {
    const auto& gone = without.gone;
    const bool has_no_list = without.code == Code::system && verdicts_.any_killed();
    return (has_no_list || std::find(gone.begin(), gone.end(), rank) != gone.end()) &&
           !world_.rank(rank).is_alive() && world_.rank(rank).left_ns() <= without.at_ns;
}

// If all ranks with the error have left, the others decide anew without them.
bool Checks::is_late_success(Rank aborted, const Outcome& error, const Outcome& success) const {
    const auto& gone = success.gone;
    return error.code == Code::aborted && success.code == Code::ok &&
           std::find(gone.begin(), gone.end(), aborted) != gone.end();
}

// An error beside a success is right only if that rank gave up at its deadline, or was left out.
void Checks::compare(uint32_t comm, uint64_t call, const std::map<Rank, Outcome>& outcomes) {
    const bool any_killed = verdicts_.any_killed();
    std::vector<const std::pair<const Rank, Outcome>*> counted;
    for (const auto& entry : outcomes) {
        const bool succeeded = entry.second.code == Code::ok;
        if (world_.rank(entry.first).is_dead()) continue;  // it may have had a decision alone
        if (!succeeded && (world_.scenario().is_slow() || may_lack_data(comm) ||
                           left_out_.count({comm, entry.first}) > 0 ||
                           interrupted_.count({comm, call, entry.first}) > 0))
            continue;
        counted.push_back(&entry);
    }
    for (const auto* one : counted) {
        for (const auto* other : counted) {
            // A new root decides an error anew, and may find another rank first.
            const bool same = one->second.equals(other->second) &&
                              (one->second.culprit == other->second.culprit || any_killed);
            if (one->first >= other->first || same) continue;
            if (is_late_success(one->first, one->second, other->second) ||
                is_late_success(other->first, other->second, one->second))
                continue;
            if (had_left(one->first, other->second) || had_left(other->first, one->second)) {
                ++lost_decisions_;
                continue;
            }
            return fail("call {} of communicator {}: rank {} gets {}, rank {} gets {}", call, comm,
                        one->first, one->second.text(), other->first, other->second.text());
        }
    }
}

void Checks::end() {
    for (const auto& [which, outcomes] : outcomes_) compare(which.first, which.second, outcomes);
    verdicts_.end();
    for (Rank number = 0; number < world_.scenario().size; ++number) {
        const SimRank& rank = world_.rank(number);
        if (rank.is_alive()) fail("rank {} has not ended", number);
        if (!rank.is_dead() && rank.open_comms() > 0)
            fail("rank {} has ended with {} communicators", number, rank.open_comms());
    }
    if (world_.network().open_links() > 0) fail("{} links are left", world_.network().open_links());
}

}  // namespace simulation
