// Virtual time, the queue of events, and the ranks of one run.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "simulation/checks.h"
#include "simulation/random.h"
#include "simulation/scenario.h"
#include "wait/waiting.h"

namespace simulation {

class SimRank;
class Network;

/// One run. All events run on one thread, each to its end, in the order of their times; events of
/// the same time run in the order in which they were posted.
class World {
public:
    using Action = std::function<void()>;

    World(const Scenario& scenario, Broken broken, bool tracing);
    ~World();
    World(const World&) = delete;

    /// Returns after the last event. The broken invariants are in checks().
    void run();

    const Scenario& scenario() const { return scenario_; }
    bool is_broken(Broken rule) const { return broken_ == rule; }
    int64_t now() const { return now_; }
    Random& random() { return random_; }
    Checks& checks() { return checks_; }
    Network& network() { return *network_; }
    /// No thread ever sleeps, so all ranks share one.
    Waiting& waiting() { return waiting_; }
    SimRank& rank(Rank rank) { return *ranks_[static_cast<std::size_t>(rank)]; }
    Rank host_of(Rank rank) const { return rank / scenario_.per_host; }

    void at(int64_t time, Action action);
    void after(int64_t delay, Action action) { at(now_ + delay, std::move(action)); }

    /// An event for people who read the trace, and for the hash that tells runs apart.
    template <typename... Args>
    void note(fmt::format_string<Args...> text, Args&&... args) {
        if (tracing_) print(fmt::format(text, std::forward<Args>(args)...));
    }
    bool traces() const { return tracing_; }
    void mix(uint64_t a, uint64_t b = 0) { hash_ = mix_hash(mix_hash(hash_, a), b); }
    uint64_t hash() const { return hash_; }
    uint64_t events() const { return events_; }

    // Faults.
    void kill(Rank rank);
    /// A control message passes; the fault of the n-th such message may strike.
    void message_passes(Fault::When when, Rank at, uint8_t topic, uint8_t kind);
    /// A rank makes its part of a smaller communicator.
    void shrinking(Rank rank) { message_passes(Fault::When::shrinking, rank, 0, 0); }
    /// The time from which a message on its way from one rank to another can travel.
    int64_t open_from(Rank from, Rank to, int64_t time) const;

private:
    struct Event {
        int64_t time;
        uint64_t serial;
        Action action;
    };
    struct Later {
        bool operator()(const Event& a, const Event& b) const {
            return a.time != b.time ? a.time > b.time : a.serial > b.serial;
        }
    };
    struct Cut {
        Rank from_host, to_host;
        int64_t from, to;
    };
    void strike(const Fault& fault, Rank at);
    void print(const std::string& text) const;

    const Scenario scenario_;
    const Broken broken_;
    const bool tracing_;
    int64_t now_ = 1'000'000'000'000;
    uint64_t serial_ = 0, events_ = 0, hash_ = hash_basis;
    Random random_;
    Checks checks_;
    Wakeups wakeups_{false, 100};
    Waiting waiting_{wakeups_};
    std::vector<Event> queue_;  // a heap
    std::vector<Cut> cuts_;
    std::vector<uint64_t> passed_;  // by fault: messages that match it so far
    std::unique_ptr<Network> network_;
    std::vector<std::unique_ptr<SimRank>> ranks_;
};

}  // namespace simulation
