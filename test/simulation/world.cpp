#include "simulation/world.h"

#include <algorithm>
#include <utility>

#include "simulation/network.h"
#include "simulation/rank.h"

namespace simulation {
namespace {

constexpr int64_t longest_teardown_ns = 300 * ms;
// A run that needs more goes round in circles.
constexpr uint64_t most_events_of_a_rank = 400'000;
constexpr int64_t longest_run_ns = 600'000 * ms;

}  // namespace

World::World(const Scenario& scenario, Broken broken, bool tracing)
    : scenario_(scenario),
      broken_(broken),
      tracing_(tracing),
      random_(scenario.seed ^ 0x5eed),
      checks_(*this),
      passed_(scenario.faults.size()),
      network_(std::make_unique<Network>(*this)) {
    virtual_now_ns = &now_;
    for (Rank rank = 0; rank < scenario.size; ++rank)
        ranks_.push_back(std::make_unique<SimRank>(*this, rank));
}

World::~World() {
    queue_.clear();
    ranks_.clear();
    virtual_now_ns = nullptr;
}

void World::at(int64_t time, Action action) {
    queue_.push_back({std::max(time, now_), serial_++, std::move(action)});
    std::push_heap(queue_.begin(), queue_.end(), Later{});
}

void World::run() {
    const int64_t began = now_;
    for (Rank rank = 0; rank < scenario_.size; ++rank)
        after(random_.spread(1 * us, 10 * ms), [this, rank] { this->rank(rank).start(); });
    for (const Fault& fault : scenario_.faults) {
        if (fault.when == Fault::When::joining)
            after(fault.at_ns, [this, &fault] { strike(fault, fault.victim); });
        else if (fault.when == Fault::When::time)
            after(15 * ms + fault.at_ns, [this, &fault] { strike(fault, fault.victim); });
    }
    const auto most = most_events_of_a_rank * static_cast<uint64_t>(scenario_.size);
    while (!queue_.empty()) {
        std::pop_heap(queue_.begin(), queue_.end(), Later{});
        Event event = std::move(queue_.back());
        queue_.pop_back();
        now_ = event.time;
        event.action();
        if (++events_ > most || now_ - began > longest_run_ns) {
            checks_.fail("the run does not end: {} events in {} ms", events_, (now_ - began) / ms);
            break;
        }
    }
    checks_.end();
    mix(events_, static_cast<uint64_t>(now_));
}

void World::print(const std::string& text) const {
    fmt::print("{:>14.3f} ms  {}\n", static_cast<double>(now_ - 1'000'000'000'000) / 1e6, text);
}

// ---- faults ----------------------------------------------------------------------------------

void World::kill(Rank victim) {
    if (!rank(victim).is_alive()) return;
    checks_.verdicts().killed(victim);
    checks_.traffic().trouble();
    rank(victim).kill(random_.spread(100 * us, longest_teardown_ns));
}

// Counts only messages of that kind, so the fault strikes in the middle of the protocol.
void World::message_passes(Fault::When when, Rank at, uint8_t topic, uint8_t kind) {
    for (std::size_t f = 0; f < passed_.size(); ++f) {
        const Fault& fault = scenario_.faults[f];
        if (fault.when != when || fault.topic != topic || fault.message != kind) continue;
        if (++passed_[f] == fault.nth) strike(fault, at);
    }
}

void World::strike(const Fault& fault, Rank at) {
    if (fault.kind == Fault::Kind::cut) {
        note("the link from host {} to host {} is cut for {} us{}", fault.from_host, fault.to_host,
             fault.for_ns / us, fault.both_ways ? ", both ways" : "");
        checks_.traffic().trouble();
        cuts_.push_back({fault.from_host, fault.to_host, now_, now_ + fault.for_ns});
        if (fault.both_ways)
            cuts_.push_back({fault.to_host, fault.from_host, now_, now_ + fault.for_ns});
        return;
    }
    Rank victim = fault.victim == nobody ? at : fault.victim;
    if (victim == nobody)
        victim = static_cast<Rank>(random_.below(static_cast<uint64_t>(scenario_.size)));
    for (Rank n = 0; n <= fault.also; ++n) {
        const Rank struck = (victim + n) % scenario_.size;
        fault.kind == Fault::Kind::kill ? kill(struck) : rank(struck).stop(fault.for_ns);
    }
}

int64_t World::open_from(Rank from, Rank to, int64_t time) const {
    for (const Cut& cut : cuts_)
        if (cut.from_host == host_of(from) && cut.to_host == host_of(to) && time >= cut.from &&
            time < cut.to)
            time = cut.to;
    return time;
}

}  // namespace simulation
