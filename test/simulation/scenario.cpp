#include "simulation/scenario.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/tree_message.h"
#include "simulation/random.h"

namespace simulation {
namespace {

constexpr Rank most_ranks_of_all_pairs = 64;

Rank draw_size(uint64_t seed, Random& random) {
    if (seed % 2000 == 1999) return random.between<Rank>(512, 1024);
    const uint64_t share = random.below(1000);
    if (share < 800) return random.between<Rank>(2, 9);
    if (share < 990) return random.between<Rank>(10, 20);
    return random.between<Rank>(21, 64);
}

// Collectives with messages between all pairs would take most of the time of a large job's run.
Step draw_step(Random& random, Rank ranks) {
    Step step;
    step.before_ns =
        random.percent(10) ? random.spread(1 * us, 20 * ms) : random.spread(1 * us, 200 * us);
    step.chosen = random.next();
    const uint64_t share = random.below(100);
    if (share < 75) {
        constexpr Collective collectives[] = {Collective::allreduce, Collective::allreduce,
                                              Collective::broadcast, Collective::alltoall,
                                              Collective::allgather, Collective::barrier};
        step.collective = collectives[random.below(std::size(collectives))];
        if (ranks > most_ranks_of_all_pairs && step.collective != Collective::broadcast)
            step.collective = Collective::barrier;
        step.algorithm = random.below(64);
        step.count = random.between<std::size_t>(1, 40);
    } else if (share < 92) {
        step.kind = Step::Kind::agree;
    } else if (share < 95) {
        step.kind = Step::Kind::revoke;
    } else if (share < 98) {
        step.kind = Step::Kind::shrink;
    } else {
        step.kind = Step::Kind::shrink_without;
    }
    return step;
}

/// Half of the seeds have aborts and mismatches. They replace steps and have chance of their own,
/// so the other seeds, and the other steps of these, are the same as without them.
void add_aborts_and_mismatches(Scenario& s) {
    Random random(s.seed ^ 0xab07);
    if (random.percent(50)) return;
    for (auto& steps : s.generations) {
        for (Step& step : steps) {
            const uint64_t share = random.below(100);
            if (step.kind == Step::Kind::collective && share < 15)
                step.kind = Step::Kind::mismatch;
            else if (share >= 95)
                step.kind = Step::Kind::abort;
        }
    }
}

uint8_t number(auto value) {
    return static_cast<uint8_t>(value);
}

void draw_moment(Random& random, Fault& fault) {
    using Kind = ControlMessage::Kind;
    const uint64_t share = random.below(100);
    if (share < 40) {
        fault.at_ns = random.spread(10 * us, 100 * ms);
        return;
    }
    if (share < 50) {
        fault.when = Fault::When::shrinking;
        fault.nth = random.between<uint64_t>(1, 6);
        return;
    }
    fault.when = random.percent(50) ? Fault::When::sent : Fault::When::received;
    fault.topic = number(TreeMessage::Topic::control);
    constexpr Kind kinds[] = {Kind::agree,  Kind::agree, Kind::agree,
                              Kind::failed, Kind::bye,   Kind::query};
    fault.message = number(kinds[random.below(std::size(kinds))]);
    if (random.percent(15)) {
        constexpr TreeMessage::Topic topics[] = {
            TreeMessage::Topic::loss, TreeMessage::Topic::leaving, TreeMessage::Topic::returned};
        fault.topic = number(topics[random.below(std::size(topics))]);
    }
    fault.nth = random.between<uint64_t>(1, 30);
}

Fault draw_fault(Random& random, const Scenario& s) {
    Fault fault;
    const Rank hosts = (s.size + s.per_host - 1) / s.per_host;
    const uint64_t share = random.below(100);
    if (share < 80) {
        fault.kind = Fault::Kind::kill;
    } else if (share < 92) {
        fault.kind = Fault::Kind::stop;
        fault.for_ns = random.spread(5 * ms, 4000 * ms);
    } else if (hosts > 1) {
        fault.kind = Fault::Kind::cut;
        fault.from_host = static_cast<Rank>(random.below(static_cast<uint64_t>(hosts)));
        fault.to_host = (fault.from_host + random.between<Rank>(1, hosts - 1)) % hosts;
        fault.both_ways = random.percent(60);
        fault.for_ns = random.spread(1 * ms, 3000 * ms);
    }
    draw_moment(random, fault);
    fault.victim = random.percent(20) ? 0
                   : random.percent(40)
                       ? nobody
                       : static_cast<Rank>(random.below(static_cast<uint64_t>(s.size)));
    if (random.percent(15)) fault.also = random.between<Rank>(1, std::max<Rank>(1, s.size / 2));
    if (fault.kind == Fault::Kind::kill && random.percent(4)) {
        fault.when = Fault::When::joining;
        fault.at_ns = random.spread(10 * us, 5 * ms);
        if (fault.victim == nobody) fault.victim = 0;
    }
    return fault;
}

/// Ranks and links are silent for up to ten heartbeats, and no deadline ends the wait for them.
void make_silent(Random& random, Scenario& s) {
    s.heartbeat_ms = random.between<int64_t>(300, 800);
    s.timeout_ms = 30'000;
    s.manual = random.percent(5);
    for (Fault& fault : s.faults) {
        if (fault.when == Fault::When::joining) continue;
        const Rank hosts = (s.size + s.per_host - 1) / s.per_host;
        const uint64_t share = random.below(100);
        if (share < 30) continue;
        fault.kind = share < 65 || hosts == 1 ? Fault::Kind::stop : Fault::Kind::cut;
        fault.for_ns = random.between<int64_t>(s.heartbeat_ms / 10, 10 * s.heartbeat_ms) * ms;
        if (fault.kind != Fault::Kind::cut) continue;
        fault.from_host = static_cast<Rank>(random.below(static_cast<uint64_t>(hosts)));
        fault.to_host = (fault.from_host + random.between<Rank>(1, hosts - 1)) % hosts;
        fault.both_ways = random.percent(60);
    }
}

}  // namespace

bool Scenario::is_slow() const {
    return std::any_of(faults.begin(), faults.end(),
                       [](const Fault& f) { return f.kind != Fault::Kind::kill; });
}

std::string Scenario::describe() const {
    std::string text = fmt::format(
        "seed {}: {} ranks, {} on a host, policy {}, time-out {} ms, "
        "heartbeat {} ms{}{}",
        seed, size, per_host, static_cast<int>(policy), timeout_ms, heartbeat_ms,
        manual ? ", manual progress" : "", mapped ? ", mapped" : "");
    for (const Fault& f : faults)
        text += fmt::format(
            "\n  fault: kind {} when {} at {} us, topic {} message {} nth {}, victim {} and {}, "
            "for {} us",
            static_cast<int>(f.kind), static_cast<int>(f.when), f.at_ns / us, f.topic, f.message,
            f.nth, f.victim, f.also, f.for_ns / us);
    return text;
}

Scenario draw(uint64_t seed, const Wishes& wishes) {
    Random random(seed);
    Scenario s;
    s.seed = seed;
    const Rank drawn = draw_size(seed, random);
    s.size = wishes.ranks > 0 ? wishes.ranks : drawn;
    s.per_host =
        random.percent(40) ? s.size : random.between<Rank>(1, std::max<Rank>(1, s.size / 2));
    s.manual = random.percent(20);
    s.mapped = random.percent(50);
    s.latency_ns = random.spread(5 * us, 1 * ms);
    s.tail_ns = random.spread(s.latency_ns, 100 * ms);
    s.tail_percent = random.percent(50) ? 0 : random.between<uint64_t>(1, 5);
    s.policy = static_cast<Policy>(std::min<uint64_t>(3, random.below(10) / 3));
    s.destroys_old = random.percent(60);
    s.bad_parts_percent = random.percent(10) ? 20 : 0;
    const uint64_t faults = random.percent(12) ? 0 : random.between<uint64_t>(1, 4);
    for (uint64_t f = 0; f < faults; ++f) s.faults.push_back(draw_fault(random, s));
    s.timeout_ms = s.is_slow() ? random.spread(1000, 4000) : 20'000;
    const uint64_t generations = random.between<uint64_t>(1, 4);
    const uint64_t most_steps = s.size > most_ranks_of_all_pairs ? 2 : 8;
    for (uint64_t g = 0; g < generations; ++g) {
        auto& steps = s.generations.emplace_back();
        for (uint64_t n = random.between<uint64_t>(1, most_steps); n > 0; --n)
            steps.push_back(draw_step(random, s.size));
    }
    add_aborts_and_mismatches(s);
    s.resets = random.percent(30);
    if (wishes.silent) make_silent(random, s);
    return s;
}

}  // namespace simulation
