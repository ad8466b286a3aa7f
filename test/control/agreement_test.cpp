// One agreement in chosen situations, its values and its messages as bytes.
#include <random>

#include "control/agreement_world.h"

namespace {

using namespace agreement_world;

RankSet set_of(Rank size, std::initializer_list<Rank> ranks) {
    RankSet set(size);
    for (const Rank rank : ranks) set.insert(rank);
    return set;
}

RankSet silent_after(Rank size, std::initializer_list<Accusation> accusations) {
    Knowledge known(size);
    for (const auto& [accuser, accused] : accusations) known.accuse(accuser, accused);
    return known.silent();
}

const Decision& outcome_of(const World& world, Rank rank) {
    REQUIRE(world[rank].outcome());
    return *world[rank].outcome();
}

AgreementMessage full_message(AgreementMessage::Role role, Rank size) {
    AgreementMessage message(size);
    message.role = role;
    message.instance = static_cast<uint64_t>(Agreement::never_ns);
    message.wants_answer = true;
    message.known.dead.insert(0);
    message.known.accuse(1, 2);
    Decision decision;
    decision.ballot = {1, 1};
    decision.bits = 0xf0f0;
    decision.gone = decision.silent = decision.leavers = set_of(size, {2});
    decision.payload = Bytes(3, std::byte{7});
    message.proposal = decision;
    if (role == AgreementMessage::Role::statement) {
        message.merged = call_of(1, size);
        message.merged.payload.clear();
        message.contributed = set_of(size, {1, size - 1});
        message.gave_up = GiveUp{Code::timeout, 2, "too late"};
    } else if (role == AgreementMessage::Role::inquiry) {
        message.missing = set_of(size, {2});
    } else {
        decision.code = Code::peer_lost;
        decision.culprit = 2;
        decision.text = "no majority";
        message.decision = decision;
    }
    return message;
}

}  // namespace

TEST_CASE("rank set: a set is what was inserted, over several words") {
    RankSet odd(130), all = RankSet::all(130);
    for (Rank rank = 1; rank < 130; rank += 2) CHECK(odd.insert(rank));
    CHECK(!odd.insert(129));
    CHECK(!odd.insert(130));
    CHECK(!odd.insert(nobody));
    CHECK(odd.count() == 65);
    CHECK(all.count() == 130);
    CHECK(all.includes(odd));
    CHECK(!odd.includes(all));
    const RankSet even = all.without(odd);
    CHECK(even.ranks().front() == 0);
    CHECK(even.ranks().back() == 128);
    RankSet both = even;
    CHECK(both.merge(odd));
    CHECK(!both.merge(odd));
    CHECK(both == all);
}

TEST_CASE("knowledge: accusations exclude the smaller side, the accused and the higher rank") {
    CHECK(silent_after(3, {}) == RankSet(3));
    CHECK(silent_after(3, {{1, 0}}) == set_of(3, {0}));
    CHECK(silent_after(3, {{1, 0}, {0, 1}}) == set_of(3, {1}));
    CHECK(silent_after(4, {{0, 2}, {2, 0}, {0, 3}, {3, 0}, {1, 2}, {2, 1}, {1, 3}, {3, 1}}) ==
          set_of(4, {2, 3}));
    Knowledge cut(5);
    for (const Rank small : {0, 1}) {
        for (const Rank large : {2, 3, 4}) {
            cut.accuse(small, large);
            cut.accuse(large, small);
        }
    }
    CHECK(cut.silent() == set_of(5, {0, 1}));
    // Only the neighbour in the tree sees that a host is cut off.
    CHECK(silent_after(4, {{1, 0}, {1, 2}, {1, 3}}) == set_of(4, {0, 2, 3}));
    CHECK(silent_after(4, {{1, 0}, {1, 2}, {1, 3}, {2, 1}, {0, 1}}) == set_of(4, {1}));
}

TEST_CASE("knowledge: new facts never lower the ballot, and a ballot has one root") {
    const auto seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    for (int run = 0; run < 200; ++run) {
        const Rank size = 2 + static_cast<Rank>(random() % 12);
        const auto any = [&] { return static_cast<Rank>(random() % static_cast<unsigned>(size)); };
        const std::vector<Rank> order = tree_preorder(size, 2);
        Knowledge known(size);
        Ballot before;
        for (int fact = 0; fact < 12; ++fact) {
            Knowledge news(size);
            if (random() % 2 == 0)
                news.dead.insert(any());
            else
                news.accuse(any(), any());
            known.merge(news);
            CHECK(!known.merge(news));
            const Leadership lead = leadership(known, size, 2);
            CHECK(lead.ballot >= before);
            before = lead.ballot;
            if (lead.root != nobody) CHECK(order[lead.ballot.place] == lead.root);
            CHECK((lead.root == nobody) == (known.excluded() == RankSet::all(size)));
        }
    }
}

TEST_CASE("agreement messages: bytes of each role are read back, cut or foreign ones refused") {
    using Role = AgreementMessage::Role;
    for (const Role role : {Role::statement, Role::inquiry, Role::decision}) {
        for (const Rank size : {3, 64, 65, 1024}) {
            const AgreementMessage message = full_message(role, size);
            Bytes bytes = message.encode();
            CHECK(bytes.size() <= 48 * 1024);
            REQUIRE(AgreementMessage::decode(bytes, size) == message);
            if (size <= 64)
                for (std::size_t cut = 0; cut < bytes.size(); ++cut)
                    CHECK(!AgreementMessage::decode(ByteView(bytes).first(cut), size));
            CHECK(!AgreementMessage::decode(bytes, 2));
            bytes.push_back(std::byte{0});
            CHECK(!AgreementMessage::decode(bytes, size));
        }
    }
    AgreementMessage failed = full_message(Role::inquiry, 3);
    failed.proposal->code = Code::timeout;
    CHECK(!AgreementMessage::decode(failed.encode(), 3));
    AgreementMessage unknown = full_message(Role::statement, 3);
    unknown.gave_up->code = static_cast<Code>(200);
    CHECK(!AgreementMessage::decode(unknown.encode(), 3));
}

TEST_CASE("agreement messages: the largest one fits the control tree's frames") {
    AgreementMessage message = full_message(AgreementMessage::Role::decision, 1024);
    for (Rank rank = 1; rank < 1024; ++rank) message.known.accuse(rank, 0);
    for (Rank rank = 1; rank < 1024; ++rank) message.known.accuse(0, rank);
    CHECK(message.known.accusations.size() == Knowledge::max_accusations);
    message.proposal->payload = message.decision->payload =
        Bytes(AgreementMessage::max_payload_bytes);
    message.decision->text = std::string(5000, 'x');
    const Bytes bytes = message.encode();
    CHECK(bytes.size() <= 48 * 1024);
    CHECK(AgreementMessage::decode(bytes, 1024));
}

TEST_CASE("agreement: a message that contradicts itself is dropped") {
    World world(3, tree_arity);
    world.call(0);
    AgreementMessage message(3);
    message.role = AgreementMessage::Role::inquiry;
    message.proposal = Decision{};
    message.proposal->ballot = {0, 1};  // its facts say that rank 0 is the root
    const AgreementState before = world[0].state();
    world.change(0, [&](auto& agreement, auto& out) { agreement.receive(1, message, out); });
    CHECK(world.wire.empty());
    CHECK(world[0].state() == before);
}

TEST_CASE("agreement: ranks with different calls all get MISMATCH") {
    World world(11, 2);
    for (Rank rank = 0; rank < 11; ++rank) {
        AgreementCall call = call_of(rank, 11);
        if (rank == 7) call.kind = AgreementCall::Kind::agree;
        world.call(rank, call);
    }
    CHECK(world.ends());
    for (Rank rank = 0; rank < 11; ++rank) CHECK(outcome_of(world, rank).code == Code::mismatch);
    CHECK(outcome_of(world, 0).text.find("rank 7 called agree") != std::string::npos);
    CHECK(outcome_of(world, 0).text.find("called shrink") != std::string::npos);
}

TEST_CASE("agreement: ranks that leave out different ranks all get MISMATCH") {
    World world(5, tree_arity);
    for (Rank rank = 0; rank < 5; ++rank) {
        AgreementCall call = call_of(rank, 5);
        if (rank == 3) call.leavers.insert(0);  // the others do not know of it
        world.call(rank, call);
    }
    CHECK(world.ends());
    for (Rank rank = 0; rank < 5; ++rank) CHECK(outcome_of(world, rank).code == Code::mismatch);
}

TEST_CASE("agreement: the callers leave out a rank that does not answer") {
    World world(4, tree_arity);
    for (Rank rank = 1; rank < 4; ++rank) {
        AgreementCall call = call_of(rank, 4);
        call.leavers.insert(0);
        world.call(rank, call);
    }
    while (!world.wire.empty()) world.deliver(0);
    for (Rank rank = 1; rank < 4; ++rank) {
        CHECK(outcome_of(world, rank).code == Code::ok);
        CHECK(outcome_of(world, rank).gone == set_of(4, {0}));
        CHECK(outcome_of(world, rank).silent.empty());
    }
    // It learns that it has been left out.
    CHECK(outcome_of(world, 0).code == Code::peer_lost);
}

TEST_CASE(
    "agreement: a deadline ends the call of all that wait, and of the late rank when it comes") {
    World world(12, 2);
    for (Rank rank = 0; rank < 12; ++rank)
        if (rank != 5) world.call(rank);
    while (!world.wire.empty()) world.deliver(0);
    // All ranks learn which one is late, and its child is not named.
    for (int i = 0; i < 4; ++i) {
        world.tick();
        while (!world.wire.empty()) world.deliver(0);
    }
    for (const Rank rank : {0, 1, 2, 6, 7}) CHECK(world[rank].missing() == set_of(12, {5}));
    world.give_up(2);
    CHECK(outcome_of(world, 2).culprit == 5);
    while (!world.wire.empty()) world.deliver(0);
    for (Rank rank = 0; rank < 12; ++rank) CHECK(outcome_of(world, rank).code == Code::timeout);
    world.call(5);
    CHECK(outcome_of(world, 5).culprit == 5);
}

TEST_CASE("agreement: a side without a majority gets PEER_LOST, the other side goes on") {
    World world(5, tree_arity);
    world.call_all();
    const auto same_side = [](Rank a, Rank b) { return (a < 2) == (b < 2); };
    const auto run = [&] {
        while (!world.wire.empty()) {
            if (same_side(world.wire[0].from, world.wire[0].to))
                world.deliver(0);
            else
                world.wire.erase(world.wire.begin());
        }
    };
    run();
    // The link between the ranks 0, 1 and the ranks 2, 3, 4 is cut, and the neighbours notice it.
    for (const auto& [rank, accused] : {std::pair{0, 2}, {0, 3}, {0, 4}, {2, 0}, {2, 1}, {3, 0}})
        world.accuse(rank, accused);
    run();
    for (int i = 0; i < 4; ++i) {
        world.tick();
        run();
    }
    for (const Rank rank : {0, 1}) {
        CHECK(outcome_of(world, rank).code == Code::peer_lost);
        CHECK(outcome_of(world, rank).text.find("2 of 5 ranks") != std::string::npos);
    }
    // All had contributed to rank 0, which could have decided: the outcome is not known.
    for (const Rank rank : {2, 3, 4}) {
        CHECK(outcome_of(world, rank).code == Code::peer_lost);
        CHECK(outcome_of(world, rank).text.find("may know the result") != std::string::npos);
    }
    CHECK(world.fault() == "");
}

TEST_CASE("agreement: a majority excludes silent ranks, which learn of it when the link heals") {
    World world(5, tree_arity);
    for (const Rank rank : {0, 1, 2}) world.call(rank);
    for (const Rank silent : {3, 4}) world.accuse(1, silent);
    for (int i = 0; i < 3; ++i, world.tick()) {
        while (!world.wire.empty()) {
            if (world.wire[0].to <= 2)
                world.deliver(0);
            else
                world.wire.erase(world.wire.begin());
        }
    }
    for (const Rank rank : {0, 1, 2}) {
        CHECK(outcome_of(world, rank).code == Code::ok);
        CHECK(outcome_of(world, rank).silent == set_of(5, {3, 4}));
    }
    world.call(3);
    CHECK(world.ends());
    CHECK(outcome_of(world, 3).code == Code::peer_lost);
    CHECK(outcome_of(world, 3).culprit == 3);
    CHECK(world.fault() == "");
}

TEST_CASE("agreement: the first root is excluded if one contributor has never contributed to it") {
    for (const bool all_early : {false, true}) {
        World world(3, tree_arity);
        world.call(1);
        if (all_early) world.call(2);
        std::erase_if(world.wire, [](const Envelope& e) { return e.to == 0; });
        for (const Rank rank : {1, 2}) world.accuse(rank, 0);
        if (!all_early) world.call(2);
        while (!world.wire.empty()) {
            if (world.wire[0].to != 0)
                world.deliver(0);
            else
                world.wire.erase(world.wire.begin());
        }
        for (const Rank rank : {1, 2})
            CHECK(outcome_of(world, rank).code == (all_early ? Code::peer_lost : Code::ok));
    }
}

TEST_CASE("agreement: statements are sent again after 200 ms, then more and more rarely") {
    World world(2, tree_arity);
    world.call(1);
    world.wire.clear();
    int64_t now_ns = world.now_ns, before_ns = now_ns;
    std::vector<int64_t> pauses_ms;
    for (int i = 0; i < 6; ++i) {
        now_ns = world[1].next_due_ns();
        world.change(1, [&](auto& agreement, auto& out) { agreement.resend(now_ns - 1, out); });
        CHECK(world.wire.empty());
        world.change(1, [&](auto& agreement, auto& out) { agreement.resend(now_ns, out); });
        REQUIRE(world.wire.size() == 1);
        CHECK(world.wire[0].to == 0);
        world.wire.clear();
        pauses_ms.push_back((now_ns - before_ns) / 1'000'000);
        before_ns = now_ns;
    }
    CHECK(pauses_ms == std::vector<int64_t>{200, 200, 400, 800, 1600, 2000});
    world.call(0);
    CHECK(world.ends());
    CHECK(world[1].next_due_ns() == Agreement::never_ns);
}

// The root has died after one child had its decision, and another child does not answer. That child
// is the new root and has returned; the others ask it again and again.
TEST_CASE("agreement: a rank that has returned asks for all neighbours that wait at once") {
    constexpr Rank size = 17, stopped = 5;
    World world(size, tree_arity);
    for (Rank rank = 0; rank < size; ++rank)
        if (rank != stopped) world.call(rank);
    // The stopped rank has sent its call, and hears nothing from now on.
    world.call(stopped);
    const auto deliver_all = [&] {
        std::size_t asked = 0;
        std::erase_if(world.wire, [](const Envelope& e) { return e.to == stopped; });
        while (!world.wire.empty()) {
            world.deliver(0);
            std::erase_if(world.wire, [](const Envelope& e) { return e.to == stopped; });
            ++asked;
        }
        return asked;
    };
    while (!world[0].outcome()) world.deliver(0);
    std::erase_if(world.wire, [](const Envelope& e) { return e.from == 0 && e.to != 1; });
    while (!world[1].outcome()) world.deliver(0);
    world.wire.clear();
    world.kill(0);
    for (Rank rank = 1; rank < size; ++rank)
        if (rank != stopped) world.learn(rank, 0);
    deliver_all();
    for (int pause = 0; pause < 3; ++pause) {
        world.tick();
        // Each neighbour asks and is answered; the root asks each of them, and is answered.
        CHECK(deliver_all() <= 4 * (size - 2));
    }
    CHECK(!world.all_ended());
}
