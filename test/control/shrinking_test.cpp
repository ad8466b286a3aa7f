// Ranks that make a smaller communicator over agreements without a network.
#include "control/agreement/shrinking.h"

#include <algorithm>
#include <random>

#include "control/agreement/agreements.h"
#include "support/catch.h"

namespace {

using namespace tutti;

using Action = Shrinking::Action;
using Kind = Action::Kind;

struct Survivor {
    Agreements agreements;
    Shrinking shrinking;
    std::optional<Action> result = std::nullopt;
    std::optional<SmallerGroup> to_make = std::nullopt, part = std::nullopt;
    bool is_asking = false, has_begun = false;
};

class Survivors {
public:
    Survivors(Rank all, uint64_t seed) : size_(all), random_(seed), dead_(size_) {
        for (Rank rank = 0; rank < size_; ++rank)
            ranks_.push_back(
                {Agreements({rank, size_, 2}), Shrinking(rank, size_, RankSet(size_))});
    }
    Survivor& operator[](Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }
    std::vector<Rank> alive() const { return RankSet::all(size_).without(dead_).ranks(); }

    void begin(Rank rank) {
        perform(rank, (*this)[rank].shrinking.begin(static_cast<uint32_t>(10 + rank)));
    }
    void kill(Rank rank) {
        dead_.insert(rank);
        std::erase_if(wire_, [&](const auto& e) { return e.second.to == rank; });
    }
    void learn(Rank rank) {
        Knowledge facts(size_);
        facts.dead = dead_;
        AgreementOutputs out;
        (*this)[rank].agreements.learn(facts, out);
        post(rank, out);
    }
    void deliver() {
        if (wire_.empty()) return;
        const auto at = wire_.begin() + static_cast<std::ptrdiff_t>(random_() % wire_.size());
        const auto [from, one] = *at;
        wire_.erase(at);
        AgreementOutputs out;
        (*this)[one.to].agreements.receive(from, one.message, out);
        post(one.to, out);
    }
    void make(Rank rank, bool works) {
        Survivor& its = (*this)[rank];
        if (!its.to_make) return;
        Shrinking::OwnPart part;
        part.has_intrinsics = rank != 3;
        part.first_free_id = its.to_make->id + 1 + static_cast<uint32_t>(rank);
        if (works)
            its.part = its.to_make;
        else
            part.error = Error{Code::no_memory, nobody, 0, "no memory for the part"};
        its.to_make.reset();
        perform(rank, its.shrinking.made(part));
    }
    /// Nothing fails any more: true if all calls end.
    bool ends() {
        for (int round = 0; round < 400; ++round) {
            for (const Rank rank : alive()) {
                if (!(*this)[rank].has_begun) begin(rank);
                learn(rank);
                make(rank, true);
            }
            while (!wire_.empty()) deliver();
            const auto ranks = alive();
            if (std::all_of(ranks.begin(), ranks.end(),
                            [&](Rank rank) { return (*this)[rank].result.has_value(); }))
                return true;
        }
        return false;
    }
    void check_success() {
        std::optional<Action> common;
        for (const Rank rank : alive()) {
            const Action& result = *(*this)[rank].result;
            REQUIRE(!result.error);
            REQUIRE((*this)[rank].part == result.group);
            const auto& members = result.group.members;
            REQUIRE(std::find(members.begin(), members.end(), rank) != members.end());
            const bool has_third = std::find(members.begin(), members.end(), 3) != members.end();
            if (has_third) REQUIRE(!result.has_intrinsics);
            if (common) REQUIRE(common->group == result.group);
            if (common) REQUIRE(common->has_intrinsics == result.has_intrinsics);
            common = result;
        }
    }

private:
    void perform(Rank rank, const Action& action) {
        Survivor& its = (*this)[rank];
        if (action.drop_part) its.part.reset();
        AgreementOutputs out;
        switch (action.kind) {
            case Kind::agree:
                if (its.has_begun)
                    its.agreements.begin_round(action.call, 0, out);
                else
                    its.agreements.begin(action.call, 0, out);
                its.has_begun = its.is_asking = true;
                break;
            case Kind::make:
                its.to_make = action.group;
                break;
            case Kind::finish:
                its.result = action;
                break;
        }
        post(rank, out);
    }
    void post(Rank from, const AgreementOutputs& out) {
        for (const AgreementOutput& one : out)
            if (!dead_.contains(one.to)) wire_.push_back({from, one});
        Survivor& its = (*this)[from];
        if (!its.is_asking || !its.agreements.outcome()) return;
        its.is_asking = false;
        perform(from, its.shrinking.decided(*its.agreements.outcome()));
    }

    Rank size_;
    std::mt19937_64 random_;
    RankSet dead_;
    std::vector<Survivor> ranks_;
    std::vector<std::pair<Rank, AgreementOutput>> wire_;
};

}  // namespace

TEST_CASE("shrinking: a healthy communicator makes the same one of all ranks") {
    Survivors world(9, 1);
    REQUIRE(world.ends());
    world.check_success();
    CHECK(world[4].result->group.members.size() == 9);
    CHECK(world[4].result->group.id == 18);  // no rank has used it
}

TEST_CASE("shrinking: survivors make the same part although ranks die at any moment") {
    const auto first = std::random_device{}();
    for (uint64_t seed = first; seed < uint64_t{first} + 300; ++seed) {
        std::mt19937_64 random(seed);
        const Rank size = 2 + static_cast<Rank>(random() % 12);
        INFO("seed " << seed << ", " << size << " ranks");
        Survivors world(size, seed);
        for (int step = 0; step < 40 * size; ++step) {
            const auto alive = world.alive();
            const Rank rank = alive[random() % alive.size()];
            const auto dice = random() % 100;
            if (dice < 10 && !world[rank].has_begun)
                world.begin(rank);
            else if (dice < 12 && alive.size() > 1)
                world.kill(rank);
            else if (dice < 20)
                world.learn(rank);
            else if (dice < 35)
                world.make(rank, random() % 16 != 0);
            else
                world.deliver();
        }
        REQUIRE(world.ends());
        // A part with a member that has died is as good as lost: its ranks shrink it in turn.
        const auto alive = world.alive();
        if (std::any_of(alive.begin(), alive.end(),
                        [&](Rank rank) { return world[rank].result->error.has_value(); })) {
            for (const Rank rank : alive) REQUIRE(world[rank].result->error);
            continue;
        }
        world.check_success();
    }
}

TEST_CASE("shrinking: a rank that cannot make its part ends the call on all ranks") {
    Survivors world(4, 7);
    for (Rank rank = 0; rank < 4; ++rank) world.begin(rank);
    for (int i = 0; i < 2000; ++i) {
        world.deliver();
        for (Rank rank = 0; rank < 4; ++rank) world.make(rank, rank != 2);
    }
    for (Rank rank = 0; rank < 4; ++rank) {
        REQUIRE(world[rank].result);
        REQUIRE(world[rank].result->error);
        CHECK(world[rank].result->error->code == (rank == 2 ? Code::no_memory : Code::system));
        CHECK(!world[rank].part);
    }
}

TEST_CASE("shrinking: an agreement that fails ends the call") {
    Shrinking shrinking(1, 3, RankSet(3));
    CHECK(shrinking.begin(5).kind == Kind::agree);
    Decision decision;
    decision.code = Code::timeout;
    decision.culprit = 2;
    decision.text = "rank 2 is late";
    const Action end = shrinking.decided(decision);
    CHECK(end.kind == Kind::finish);
    CHECK(!end.drop_part);
    REQUIRE(end.error);
    CHECK(end.error->rank == 2);
    CHECK(end.error->reporter == 1);
}
