// Random runs of up to 64 ranks. Each message travels as bytes.
#include <algorithm>
#include <cstdio>
#include <random>

#include "control/agreement_world.h"
#include "support/sanitized.h"

namespace {

using namespace agreement_world;

struct Chances {
    int deaths = 0, accusations = 0, deadlines = 0;
    unsigned lost_percent = 0, twice_percent = 0;
};

class Run {
public:
    Run(uint64_t seed, Rank size, Rank arity, const Chances& chances)
        : world_(size, arity), chances_(chances), random_(seed) {}

    World& world() { return world_; }

    void run() {
        while (step()) {
            const std::string fault = world_.fault();
            REQUIRE(fault == "");
        }
        const bool has_ended = world_.ends(12);
        REQUIRE(world_.fault() == "");
        REQUIRE(has_ended);
    }

private:
    unsigned below(std::size_t bound) { return static_cast<unsigned>(random_() % bound); }
    Rank any_of(const RankSet& set) {
        const std::vector<Rank> ranks = set.ranks();
        return ranks[below(ranks.size())];
    }
    /// False when nothing is left to do.
    bool step() {
        const RankSet waiting = world_.alive().without(world_.called);
        const unsigned dice = below(100);
        if (dice < 10 && !waiting.empty()) {
            world_.call(any_of(waiting));
        } else if (dice < 12 && chances_.deaths > 0 && world_.alive().count() > 1) {
            --chances_.deaths;
            world_.kill(any_of(world_.alive()));
        } else if (dice < 20) {
            learn();
        } else if (dice < 21 && chances_.deadlines > 0) {
            --chances_.deadlines;
            const Rank rank = any_of(world_.alive());
            if (world_.called.contains(rank) && !world_[rank].outcome()) world_.give_up(rank);
        } else if (dice < 23 && chances_.accusations > 0) {
            --chances_.accusations;
            const Rank rank = any_of(world_.alive());
            world_.accuse(rank, static_cast<Rank>(below(static_cast<std::size_t>(world_.size))));
        } else if (dice < 25) {
            world_.tick();
        } else if (!world_.wire.empty()) {
            deliver(below(world_.wire.size()));
        }
        return ++steps_ < 60 * world_.size && !(world_.all_ended() && waiting.empty());
    }
    void learn() {
        const Rank rank = any_of(world_.alive());
        const RankSet news = world_.dead.without(world_.learned[static_cast<std::size_t>(rank)]);
        if (!news.empty()) world_.learn(rank, any_of(news));
    }
    void deliver(std::size_t which) {
        Envelope& e = world_.wire[which];
        const auto decoded = AgreementMessage::decode(e.message->encode(), world_.size);
        REQUIRE(decoded);
        REQUIRE(*decoded == *e.message);
        e.message = std::make_shared<const AgreementMessage>(*decoded);
        if (below(100) < chances_.lost_percent)
            world_.wire.erase(world_.wire.begin() + static_cast<std::ptrdiff_t>(which));
        else
            world_.deliver(which, below(100) < chances_.twice_percent);
    }

    World world_;
    Chances chances_;
    std::mt19937_64 random_;
    int64_t steps_ = 0;
};

void run_seeds(const char* what, int runs, Rank most, auto chances_for) {
    const auto first = std::random_device{}();
    if (tutti::test::sanitized) runs /= 10;
    std::printf("%s: seeds %u to %u\n", what, first, first + static_cast<unsigned>(runs) - 1);
    for (int i = 0; i < runs; ++i) {
        const uint64_t seed = first + static_cast<unsigned>(i);
        std::mt19937_64 random(seed);
        const Rank size = 1 + static_cast<Rank>(random() % static_cast<unsigned>(most));
        const Rank arity = random() % 2 == 0 ? tree_arity : 1 + static_cast<Rank>(random() % 3);
        INFO(what << ": seed " << seed << ", " << size << " ranks, arity " << arity);
        Run run(seed, size, arity, chances_for(random, size));
        run.run();
        const World& world = run.world();
        std::optional<Code> code;
        for (const Rank rank : world.alive().without(world.gave_up).ranks()) {
            if (!world[rank].state().known.accusations.empty()) break;
            const Code its = world[rank].outcome()->code;
            if (world.gave_up.empty()) REQUIRE(its == Code::ok);
            REQUIRE(its == code.value_or(its));
            code = its;
        }
    }
}

int up_to(std::mt19937_64& random, Rank bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
}

}  // namespace

TEST_CASE("agreement, random: all living ranks succeed alike, however many die") {
    run_seeds("deaths", 400, 20,
              [](auto& random, Rank size) { return Chances{.deaths = up_to(random, size)}; });
    run_seeds("deaths of many ranks", 20, 64,
              [](auto& random, Rank size) { return Chances{.deaths = up_to(random, size)}; });
}

// A rank has a parent, and 8 children for each level of the tree above it at most: 3 neighbours for
// each doubling of the ranks. Each death, and each pause, costs at most a statement, a question, an
// answer and a decision for each of them.
TEST_CASE("agreement, random: a rank sends few messages for each death") {
    constexpr std::size_t messages_a_level = 3 * 4;
    const auto first = std::random_device{}();
    std::printf("messages: seeds %u to %u\n", first, first + 59);
    for (unsigned i = 0; i < 60; ++i) {
        const uint64_t seed = first + i;
        std::mt19937_64 random(seed);
        const Rank size = 1 + static_cast<Rank>(random() % 64);
        const int deaths = up_to(random, size);
        INFO("seed " << seed << ", " << size << " ranks, " << deaths << " deaths");
        Run run(seed, size, tree_arity, {.deaths = deaths});
        run.run();
        const World& world = run.world();
        std::size_t levels = 1;
        while (Rank{1} << (levels - 1) < size) ++levels;
        const auto events = static_cast<std::size_t>(world.dead.count() + world.ticks());
        for (Rank rank = 0; rank < size; ++rank)
            CHECK(world.sent[static_cast<std::size_t>(rank)] <=
                  messages_a_level * (events + 2) * levels);
    }
}

TEST_CASE("agreement, random: messages are lost and come twice") {
    run_seeds("losses", 200, 16, [](auto& random, Rank size) {
        return Chances{.deaths = up_to(random, size), .lost_percent = 20, .twice_percent = 20};
    });
}

TEST_CASE("agreement, random: ranks give up") {
    run_seeds("deadlines", 400, 16, [](auto& random, Rank size) {
        return Chances{.deaths = up_to(random, size), .deadlines = 2, .twice_percent = 5};
    });
}

TEST_CASE("agreement, random: living ranks are accused") {
    run_seeds("accusations", 600, 9, [](auto& random, Rank size) {
        return Chances{.deaths = up_to(random, size) / 2,
                       .accusations = 4,
                       .deadlines = 1,
                       .lost_percent = 10,
                       .twice_percent = 10};
    });
}

TEST_CASE("agreement: without failures each rank gets one message of each neighbour") {
    for (const Rank arity : {1, 2, int{tree_arity}}) {
        for (Rank size = 1; size <= 64; ++size) {
            World world(size, arity);
            world.call_all();
            std::size_t most_hops = 0;
            // Rounds: all messages of a round are under way at once.
            while (!world.wire.empty()) {
                ++most_hops;
                for (std::size_t left = world.wire.size(); left > 0; --left) world.deliver(0);
            }
            CHECK(world.all_ended());
            CHECK(world.fault() == "");
            CHECK(world.delivered == 2 * static_cast<std::size_t>(size - 1));
            std::size_t depth = 0;
            for (Rank rank = size - 1; rank > 0; rank = tree_parent(rank, arity)) ++depth;
            CHECK(most_hops == 2 * depth);
        }
    }
}
