// Tests that each survivor learns of a loss and blames the right rank while other ranks end.
#include <random>

#include "control/agreement/consensus.h"
#include "control/failure_protocol_ranks.h"

namespace {

using namespace agreement_test;

/// Ranks end in random order, each by dying or by leaving, until the last of them is lost; a rank
/// that has heard of that loss may leave at once.
void end_some(Ranks& ranks, std::mt19937& random) {
    ranks.tells_of_ends = true;
    const auto pick = [&] {
        const auto there = ranks.present();
        return there[random() % there.size()];
    };
    Rank last = nobody;
    for (auto ends = 1 + random() % (ranks.all.size() / 2); ends > 0; --ends) {
        last = pick();
        if (ends > 1 && random() % 2 == 0)
            ranks.leave(last, 5);
        else
            ranks.gone.insert(last);
        if (random() % 2 == 0) ranks.deliver(random() % 10);
    }
    ranks[pick()].failure_protocol.peer_lost(last, "it was killed");
    for (int leave = 0; leave < 3 && ranks.present().size() > 2; ++leave) {
        ranks.deliver(random() % 20);
        const Rank hears = pick();
        if (ranks[hears].failure_protocol.fatal_error()) ranks.leave(hears, 5);
    }
    ranks.deliver();
}

}  // namespace

TEST_CASE("ranks that end: every survivor hears of a loss, also after others have died or left") {
    const auto seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    std::vector<std::unique_ptr<Ranks>> trials;
    for (int trial = 0; trial < 40; ++trial) {
        trials.push_back(std::make_unique<Ranks>(2 + static_cast<Rank>(random() % 40)));
        end_some(*trials.back(), random);
    }
    // A waiting rank asks the others, and so learns of a loss whose news has not reached it.
    uint64_t number = 6;
    const auto ask = [&] {
        ++number;
        for (const auto& ranks : trials)
            for (const Rank rank : ranks->present()) {
                if (ranks->gone.count(rank) > 0 || (*ranks)[rank].failure_protocol.fatal_error())
                    continue;
                (*ranks)[rank].failure_protocol.inquiry().stalled(numbered(0, number));
                ranks->deliver();
            }
    };
    for (int question = 0; question < 5; ++question) ask();
    // An end without a bye is a loss after a while.
    for (const auto& ranks : trials) ranks->pause(550);
    for (const auto& ranks : trials)
        for (const Rank rank : ranks->present()) {
            (*ranks)[rank].failure_protocol.check_unreachable();
            ranks->deliver();
        }
    for (const auto& ranks : trials) {
        std::string ended;
        for (const Rank rank : ranks->gone) ended += " " + std::to_string(rank);
        for (const Rank rank : ranks->present()) {
            INFO("rank " << rank << " of " << ranks->all.size() << ", ended:" << ended);
            CHECK((*ranks)[rank].failure_protocol.fatal_error());
        }
    }
}

TEST_CASE("ranks that end: news of a loss go round the root and others that died before") {
    Ranks ranks(20);
    ranks.tells_of_ends = true;
    for (const Rank dead : {0, 1, 2}) ranks.gone.insert(dead);
    // 12 is below 1, which is below 0.
    ranks[12].failure_protocol.peer_lost(2, "it was killed");
    ranks.deliver();
    for (const Rank rank : ranks.present()) {
        INFO("rank " << rank);
        const auto over = ranks[rank].failure_protocol.fatal_error();
        REQUIRE(over);
        CHECK((over->error.code == Code::peer_lost && over->error.rank == 2));
    }
}

TEST_CASE("ranks that end: who has missed the news hears it when it asks") {
    Ranks ranks(3);
    ranks[0].failure_protocol.raise({Code::peer_lost, 1, 0, "rank 1 is gone"});
    ranks.wire.clear();
    ranks[2].failure_protocol.inquiry().stalled(numbered(0, 5));
    ranks.deliver();
    REQUIRE(ranks[2].failure_protocol.fatal_error());
    CHECK(ranks[2].failure_protocol.fatal_error()->error.rank == 1);
}

TEST_CASE("ranks that end: a rank that cannot be reached has a while to say bye") {
    Ranks ranks(4);
    const bool says_bye = GENERATE(false, true);
    const auto check = [&] {
        const bool ended = ranks[1].failure_protocol.check_unreachable();
        CHECK(ended == ranks[1].failure_protocol.ended());
    };
    ranks[1].failure_protocol.unreachable(3);
    check();
    CHECK_FALSE(ranks[1].failure_protocol.fatal_error());
    CHECK_FALSE(ranks[1].failure_protocol.has_left(3));
    if (says_bye) ranks.leave(3, 5);
    ranks.deliver();
    ranks.pause(550);
    check();
    CHECK(ranks[1].failure_protocol.has_left(3) == says_bye);
    REQUIRE(ranks[1].failure_protocol.fatal_error().has_value() == !says_bye);
    if (!says_bye) CHECK(ranks[1].failure_protocol.fatal_error()->error.rank == 3);
}

// A control message may overtake an earlier one to the same rank if a connection is made meanwhile.
TEST_CASE("ranks that leave: a goodbye after a mismatch does not overtake its news") {
    constexpr Rank size = 20;
    Ranks ranks(size);
    Tag other = numbered(0, 5);
    other.count = 1;
    const auto expect_mismatch = [&](Rank rank) {
        INFO("rank " << rank);
        const auto verdict = ranks[rank].failure_protocol.verdict(numbered(0, 6).sequence);
        REQUIRE(verdict);
        CHECK(verdict->code == Code::mismatch);
    };
    SECTION("from the rank that leaves") {
        ranks[0].failure_protocol.raise_mismatch(numbered(0, 5), 2, other);
        ranks.wire.clear();  // on the longer way
        ranks.leave(0, 5);
        ranks.deliver();
        for (const Rank rank : ranks.present()) expect_mismatch(rank);
    }
    SECTION("from the rank that takes its place") {
        ranks[1].failure_protocol.raise_mismatch(numbered(0, 5), 0, other);
        ranks.wire.clear();
        ranks.leave(0, 5);
        ranks.wire.clear();
        ControlMessage bye;
        bye.kind = ControlMessage::Kind::bye;
        bye.rank = 0;
        bye.tag = numbered(0, 5);
        ranks[1].failure_protocol.receive(0, bye);
        std::set<Rank> told;
        while (!ranks.wire.empty()) {
            const Rank to = ranks.wire.front().to;
            ranks.deliver(1);
            if (to != 0 && told.insert(to).second) expect_mismatch(to);
        }
        CHECK(told.size() > 2);
    }
}

// Rank 3 is stopped in operation 5; 5 and 7 wait for it there, 6 waits for 5; the others are in 6.
TEST_CASE("who is late: those that wait themselves are not, and the chain of them has an end") {
    Ranks ranks(9);
    const Tag tag = numbered(0, 6);
    const std::map<Rank, Rank> waiting{{5, 3}, {6, 5}, {7, 3}};
    for (Rank r = 0; r < 9; ++r) {
        const auto waits = waiting.find(r);
        if (waits != waiting.end()) ranks[r].blocked = waits->second;
        if (waits == waiting.end() && r != 3) ranks[r].call(tag);
    }
    ranks.gone.insert(3);
    for (int question = 0; question < 2; ++question) {
        ranks[8].failure_protocol.inquiry().stalled(tag);
        ranks.deliver();
        ranks.pause(150);
    }
    for (const Rank r : ranks.present()) {
        INFO("rank " << r);
        const Late late = ranks[r].failure_protocol.inquiry().late(tag.sequence);
        CHECK_FALSE(late.answered);
        CHECK(late.ranks.empty());
        CHECK(late.waiting == waiting);
        CHECK(late.chain(8) == std::pair<Rank, Rank>(5, 3));
        CHECK(late.silent_for(100) == std::vector<Rank>{3});
    }
    // Rank 7 has come out of it, and computes.
    ranks[7].blocked.reset();
    ranks[8].failure_protocol.inquiry().stalled(tag);
    ranks.deliver();
    const Late late = ranks[0].failure_protocol.inquiry().late(tag.sequence);
    CHECK((late.answered && late.ranks == std::vector<Rank>{7}));
}

TEST_CASE("who is late: a chain ends before the rank that asks, and in a circle") {
    Late late;
    CHECK(late.chain(0) == std::pair<Rank, Rank>(nobody, nobody));
    late.waiting = {{1, 2}, {2, 0}};
    CHECK(late.chain(0) == std::pair<Rank, Rank>(1, 2));
    CHECK(late.chain(3) == std::pair<Rank, Rank>(1, 0));
    late.waiting = {{1, nobody}};
    CHECK(late.chain(0) == std::pair<Rank, Rank>(1, 1));
    late.waiting = {{1, 2}, {2, 1}};
    CHECK(late.chain(0).first == 1);
}

TEST_CASE("a rank that has destroyed its communicator answers for its agreements") {
    Ranks ranks(3);
    std::vector<std::unique_ptr<Consensus>> all;
    AgreementCall call;
    call.leavers = RankSet(3);
    call.bits = 5;
    for (const Rank rank : {0, 1, 2}) {
        all.push_back(std::make_unique<Consensus>(rank, 3, 0, ranks[rank]));
        all.back()->begin(call);
    }
    // The root decides, and dies before it has told rank 2. Rank 1 leaves, and its goodbye is lost
    // with the root.
    for (; !ranks.wire.empty(); ranks.wire.pop_front()) {
        const Envelope e = ranks.wire.front();
        if (e.to != 2) all[static_cast<std::size_t>(e.to)]->receive(e.from, e.message);
    }
    REQUIRE(all[1]->over());
    ClosedAgreements closed;
    closed.keep(0, all[1]->last_words());
    Consensus& late = *all[2];
    late.learn({.lost = {0}, .left = {}});
    for (; !ranks.wire.empty(); ranks.wire.pop_front()) {
        ControlMessage message = ranks.wire.front().message;
        REQUIRE(ranks.wire.front().to == 1);
        const auto answers = closed.answers(0, message.body);
        REQUIRE(answers.size() == 1);
        message.body = answers[0];
        late.receive(1, message);
    }
    REQUIRE(late.over());
    CHECK(late.outcome().code == Code::ok);
    CHECK(late.outcome().bits == 5);
    CHECK(late.outcome().gone == all[1]->outcome().gone);
}

TEST_CASE("a rank that has destroyed its communicator answers with all its decisions") {
    Ranks ranks(3);
    std::vector<std::unique_ptr<Consensus>> all;
    AgreementCall call;
    call.leavers = RankSet(3);
    call.bits = 5;
    const auto deliver = [&](auto arrives) {
        for (; !ranks.wire.empty(); ranks.wire.pop_front()) {
            const Envelope e = ranks.wire.front();
            if (arrives(e)) all[static_cast<std::size_t>(e.to)]->receive(e.from, e.message);
        }
    };
    for (const Rank rank : {0, 1, 2}) {
        all.push_back(std::make_unique<Consensus>(rank, 3, 0, ranks[rank]));
        all.back()->begin(call);
    }
    deliver([](const Envelope&) { return true; });
    // Rank 2 lacks the second round's decision. Its question about the first round arrives, and the
    // one about the second round is lost.
    for (const auto& one : all) one->begin_round(call);
    deliver([](const Envelope& e) { return e.to != 2; });
    REQUIRE((all[1]->over() && !all[2]->over()));
    ClosedAgreements closed;
    closed.keep(0, all[1]->last_words());
    AgreementMessage question(3);
    question.instance = agreement_instance(1, 0);
    Consensus& late = *all[2];
    late.learn({.lost = {0}, .left = {}});
    for (Bytes& body : closed.answers(0, question.encode())) {
        ControlMessage answer;
        answer.body = std::move(body);
        late.receive(1, answer);
    }
    late.learn({.lost = {0}, .left = {}});
    REQUIRE(late.over());
    CHECK(late.outcome().gone == all[1]->outcome().gone);
}

TEST_CASE("a rank that is lost itself: its agreements end at once, and the others hear nothing") {
    Ranks ranks(3);
    Consensus consensus(1, 3, 0, ranks[1]);
    AgreementCall call;
    call.leavers = RankSet(3);
    consensus.learn(ranks[1].failure_protocol.gone());
    consensus.begin(call);
    REQUIRE_FALSE(consensus.over());
    ranks.wire.clear();
    ranks[1].failure_protocol.peer_lost(1, "it cannot go on");
    ranks.deliver();
    const auto expect_lost = [&] {
        REQUIRE(consensus.over());
        const Decision outcome = consensus.outcome();
        CHECK(outcome.code == Code::peer_lost);
        CHECK(outcome.culprit == 1);
        CHECK(ranks.wire.empty());
    };
    consensus.learn(ranks[1].failure_protocol.gone());
    expect_lost();
    consensus.begin(call);
    expect_lost();
    // The others know it from the failure, and go on.
    for (const Rank other : {0, 2})
        CHECK(ranks[other].failure_protocol.gone().lost == std::vector<Rank>{1});
}
