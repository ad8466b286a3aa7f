// Runs the failure handling of many ranks in one thread and in virtual time, from a seed, and
// checks its invariants.
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "simulation/scenario.h"
#include "simulation/world.h"

using namespace simulation;

namespace {

constexpr std::string_view usage =
    "usage: simulation --seed N [--trace] [--ranks P] [--silent] [--break RULE]\n"
    "       simulation --seeds FROM TO [--ranks P] [--silent] [--break RULE]\n"
    "       simulation --same FROM TO         two runs of each seed must be the same\n"
    "       simulation --finds FROM TO        each broken rule must be found among these seeds\n"
    "--silent: a heartbeat, and ranks and links that are silent for longer\n"
    "RULE: 1 to 9, a rule of the protocol that is broken on purpose (Broken in scenario.h)\n";

struct Options {
    std::string_view mode;
    uint64_t from = 0, to = 0;
    Wishes wishes;
    Broken broken = Broken::nothing;
    bool trace = false;
};

struct Ran {
    uint64_t hash = 0, events = 0, lost_decisions = 0, lost_data = 0, lost_goodbyes = 0;
    std::vector<std::string> broken;
};

Ran run(uint64_t seed, const Options& options) {
    const Scenario scenario = draw(seed, options.wishes);
    if (options.trace) fmt::print("{}\n", scenario.describe());
    World world(scenario, options.broken, options.trace);
    world.run();
    const Checks& checks = world.checks();
    return {world.hash(),
            world.events(),
            checks.lost_decisions(),
            checks.lost_data(),
            checks.verdicts().lost_goodbyes(),
            checks.broken()};
}

/// False if an invariant is broken; then it says which, and how to repeat the run.
bool holds(uint64_t seed, const Options& options, const Ran& ran) {
    if (ran.broken.empty()) return true;
    fmt::print("{}\n", draw(seed, options.wishes).describe());
    for (const std::string& text : ran.broken) fmt::print("  broken: {}\n", text);
    const Rank ranks = options.wishes.ranks;
    fmt::print("  repeat with: simulation --seed {} --trace{}{}\n", seed,
               ranks > 0 ? fmt::format(" --ranks {}", ranks) : "",
               options.wishes.silent ? " --silent" : "");
    std::fflush(stdout);
    return false;
}

int run_one(const Options& options) {
    const Ran ran = run(options.from, options);
    fmt::print("seed {}: {} events, hash {:016x}\n", options.from, ran.events, ran.hash);
    return holds(options.from, options, ran) ? 0 : 1;
}

int run_many(const Options& options) {
    constexpr uint64_t progress_every = 5000;
    uint64_t failed = 0, events = 0, lost_decisions = 0, lost_data = 0, lost_goodbyes = 0;
    for (uint64_t seed = options.from; seed <= options.to; ++seed) {
        const Ran ran = run(seed, options);
        failed += !holds(seed, options, ran);
        events += ran.events;
        lost_decisions += ran.lost_decisions > 0;
        lost_data += ran.lost_data > 0;
        lost_goodbyes += ran.lost_goodbyes > 0;
        if ((seed - options.from + 1) % progress_every == 0) {
            fmt::print("up to seed {}: {} failed, {} events\n", seed, failed, events);
            std::fflush(stdout);
        }
    }
    fmt::print(
        "{} seeds, {} failed, {} events; in {} runs a decision was lost with ranks that had left, "
        "in {} data with a rank that died after its goodbye, in {} a goodbye\n",
        options.to - options.from + 1, failed, events, lost_decisions, lost_data, lost_goodbyes);
    return failed == 0 ? 0 : 1;
}

int run_twice(const Options& options) {
    for (uint64_t seed = options.from; seed <= options.to; ++seed) {
        const Ran first = run(seed, options), second = run(seed, options);
        if (first.hash == second.hash && first.broken == second.broken) continue;
        fmt::print("seed {}: two runs differ: {} events and {} events\n", seed, first.events,
                   second.events);
        return 1;
    }
    return 0;
}

int find_broken(Options options) {
    int missed = 0;
    for (int rule = 1; rule <= broken_rules; ++rule) {
        options.broken = static_cast<Broken>(rule);
        uint64_t seed = options.from;
        while (seed <= options.to && run(seed, options).broken.empty()) ++seed;
        if (seed > options.to) ++missed;
        fmt::print("rule {}: {}\n", rule,
                   seed > options.to ? "not found" : fmt::format("found with seed {}", seed));
        std::fflush(stdout);
    }
    return missed;
}

bool parse(int argc, char** argv, Options& options) {
    const std::vector<std::string_view> words(argv + 1, argv + argc);
    const auto number = [&](std::size_t at) {
        return at < words.size() ? std::strtoull(words[at].data(), nullptr, 10) : 0;
    };
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == "--trace") {
            options.trace = true;
        } else if (words[i] == "--silent") {
            options.wishes.silent = true;
        } else if (words[i] == "--ranks") {
            options.wishes.ranks = static_cast<Rank>(number(++i));
        } else if (words[i] == "--break") {
            options.broken = static_cast<Broken>(number(++i));
        } else if (words[i] == "--seed" && i + 1 < words.size()) {
            options.mode = words[i];
            options.from = options.to = number(++i);
        } else if (words[i].starts_with("--") && i + 2 < words.size()) {
            options.mode = words[i];
            options.from = number(i + 1);
            options.to = number(i + 2);
            i += 2;
        } else {
            return false;
        }
    }
    return !options.mode.empty();
}

}  // namespace

int main(int argc, char** argv) {
    log::set_level(log::Level::off);
    Options options;
    if (parse(argc, argv, options)) {
        if (options.mode == "--seed") return run_one(options);
        if (options.mode == "--seeds") return run_many(options);
        if (options.mode == "--same") return run_twice(options);
        if (options.mode == "--finds") return find_broken(options);
    }
    fmt::print(stderr, "{}", usage);
    return 2;
}
