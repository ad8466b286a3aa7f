// A communicator's numbered agreements.
#include "control/agreement/agreements.h"

#include <algorithm>
#include <deque>

#include "support/catch.h"

namespace {

using namespace tutti;

struct Net {
    explicit Net(Rank net_size, Rank arity = tree_arity) : size(net_size) {
        for (Rank rank = 0; rank < size; ++rank)
            ranks.emplace_back(AgreementMember{rank, size, arity});
    }
    Agreements& operator[](Rank rank) { return ranks[static_cast<std::size_t>(rank)]; }
    void post(Rank from, const AgreementOutputs& out) {
        for (const AgreementOutput& one : out) wire.push_back({from, one});
    }
    uint64_t begin(Rank rank) {
        AgreementOutputs out;
        AgreementCall call;
        call.leavers = RankSet(size);
        call.bits = ~(uint64_t{1} << rank);
        const uint64_t instance = (*this)[rank].begin(call, now_ns, out);
        post(rank, out);
        return instance;
    }
    void begin_all() {
        for (Rank rank = 0; rank < size; ++rank)
            if (!gone(rank)) begin(rank);
    }
    void give_up(Rank rank) {
        AgreementOutputs out;
        (*this)[rank].give_up(Code::timeout, "it took too long", out);
        post(rank, out);
    }
    void learn(Rank rank, const Knowledge& facts) {
        AgreementOutputs out;
        (*this)[rank].learn(facts, out);
        post(rank, out);
    }
    void run_once() {
        if (wire.empty()) return;
        const auto [from, one] = wire.front();
        wire.pop_front();
        if (gone(one.to)) return;
        AgreementOutputs out;
        (*this)[one.to].receive(from, one.message, out);
        post(one.to, out);
    }
    void run() {
        while (!wire.empty()) run_once();
    }
    void tick() {
        now_ns += 2'000'000'000;
        for (Rank rank = 0; rank < size; ++rank) {
            if (gone(rank)) continue;
            AgreementOutputs out;
            (*this)[rank].resend(now_ns, out);
            post(rank, out);
        }
        run();
    }
    Code code(Rank rank) {
        return (*this)[rank].outcome().value_or(Decision{.code = Code::in_progress}).code;
    }
    bool gone(Rank rank) const { return std::find(left.begin(), left.end(), rank) != left.end(); }

    Rank size;
    std::vector<Agreements> ranks;
    std::deque<std::pair<Rank, AgreementOutput>> wire;
    std::vector<Rank> left;
    int64_t now_ns = 1'000'000'000;
};

}  // namespace

TEST_CASE("agreements: calls have the same numbers everywhere, and few are kept") {
    Net net(5, 2);
    for (uint64_t call = 1; call <= 20; ++call) {
        for (Rank rank = 0; rank < 5; ++rank) CHECK(net.begin(rank) == agreement_instance(call, 0));
        net.run();
        for (Rank rank = 0; rank < 5; ++rank) {
            CHECK(net.code(rank) == Code::ok);
            CHECK(net[rank].count() <= 1 + Agreements::kept_before);
        }
    }
    AgreementOutputs out;
    CHECK(net[0].begin_round({.leavers = RankSet(5)}, 0, out) == agreement_instance(20, 1));
}

TEST_CASE("agreements: a rank that is left out later still gets an earlier decision") {
    Net net(3);
    for (const Rank rank : {0, 1, 2}) net.begin(rank);
    // The root decides, and its message to rank 2 is lost.
    const auto is_for_2 = [](const auto& sent) { return sent.second.to == 2; };
    for (int turns = 0; turns < 3; ++turns) {
        std::erase_if(net.wire, is_for_2);
        net.run_once();
    }
    std::erase_if(net.wire, is_for_2);
    REQUIRE(
        (net.code(0) == Code::ok && net.code(1) == Code::ok && net.code(2) == Code::in_progress));
    // The others leave rank 2 out of their next call, which takes several rounds.
    AgreementCall call;
    call.leavers = RankSet(3);
    call.leavers.insert(2);
    for (int round = 0; round < 6; ++round) {
        for (const Rank rank : {0, 1}) {
            AgreementOutputs out;
            round == 0 ? net[rank].begin(call, net.now_ns, out)
                       : net[rank].begin_round(call, net.now_ns, out);
            net.post(rank, out);
        }
        while (!net.wire.empty()) {
            std::erase_if(net.wire, is_for_2);
            net.run_once();
        }
        REQUIRE((net.code(0) == Code::ok && net.code(1) == Code::ok));
        CHECK(net[0].count() <= 1 + Agreements::kept_before);
    }
    net.tick();
    REQUIRE(net.code(2) == Code::ok);
    CHECK(net[2].outcome()->bits == ~uint64_t{7});
    CHECK(net[2].outcome()->gone.empty());
}

TEST_CASE("agreements: a rank that is a call ahead waits for the others") {
    Net net(4);
    net.begin_all();
    net.run();
    net.begin(2);
    net.run();
    CHECK(net.code(2) == Code::in_progress);
    CHECK(net.code(1) == Code::ok);  // of its first call
    for (const Rank rank : {0, 1, 3}) net.begin(rank);
    net.run();
    for (Rank rank = 0; rank < 4; ++rank) CHECK(net.code(rank) == Code::ok);
}

TEST_CASE("agreements: after a deadline the next call succeeds, the late rank's call fails") {
    Net net(4);
    for (const Rank rank : {0, 1, 2}) net.begin(rank);
    net.run();
    net.give_up(1);
    net.run();
    for (const Rank rank : {0, 1, 2}) {
        CHECK(net.code(rank) == Code::timeout);
        CHECK(net[rank].outcome()->culprit != rank);
        net.begin(rank);
    }
    net.run();
    net.begin(3);
    CHECK(net.code(3) == Code::timeout);  // the call that the others gave up
    net.begin(3);
    net.run();
    for (Rank rank = 0; rank < 4; ++rank) CHECK(net.code(rank) == Code::ok);
}

TEST_CASE("agreements: a rank that waits far behind learns that the others have gone on") {
    Net net(3);
    for (int i = 0; i < 6; ++i) {
        for (const Rank rank : {0, 1}) {
            net.begin(rank);
            net.give_up(rank);
        }
    }
    net.wire.clear();  // all of it was lost
    net.begin(2);
    net.run();
    for (int i = 0; i < 3 && net.code(2) == Code::in_progress; ++i) net.tick();
    CHECK(net.code(2) == Code::timeout);
    for (const Rank rank : {0, 1})
        CHECK(net[rank].count() <=
              1 + Agreements::kept_before + Agreements::kept_revived + Agreements::kept_early);
}

TEST_CASE("agreements: decisions of calls that a rank has forgotten get no answer") {
    Net net(3);
    for (int i = 0; i < 8; ++i) {
        net.begin(1);
        net.give_up(1);
    }
    net.wire.clear();  // rank 0 was stopped, and its connection full
    for (int i = 0; i < 6; ++i) {
        net.begin(0);
        net.give_up(0);
    }
    for (int i = 0; i < 1000; ++i) net.run_once();
    CHECK(net.wire.empty());
}

TEST_CASE("agreements: messages of calls far ahead do not pile up") {
    Net net(2);
    for (int i = 0; i < 10; ++i) {
        net.begin(1);
        net.give_up(1);
    }
    net.run();
    CHECK(net[0].count() <= Agreements::kept_early);
    for (int i = 0; i < 10; ++i) {
        net.begin(0);
        for (int k = 0; k < 3 && net.code(0) == Code::in_progress; ++k) net.tick();
        CHECK(net.code(0) == Code::timeout);
    }
}

TEST_CASE("agreements: the decision of a rank that leaves is in its last words") {
    Net net(3);
    net.begin_all();
    // Rank 0 decides and leaves; its decision does not arrive, its goodbye does.
    while (net.code(0) == Code::in_progress) {
        const auto [from, one] = net.wire.front();
        net.wire.pop_front();
        AgreementOutputs out;
        net[one.to].receive(from, one.message, out);
        net.post(one.to, out);
    }
    net.wire.clear();
    const auto words = net[0].last_words();
    REQUIRE(words.size() == 1);
    net.left.push_back(0);
    Knowledge facts(3);
    facts.left.insert(0);
    for (const Rank rank : {1, 2}) {
        AgreementOutputs out;
        if (rank == 2) net.learn(2, facts);  // it knows of the end before it gets the goodbye
        for (const AgreementMessage& word : words) net[rank].receive(0, word, out);
        net.post(rank, out);
        net.learn(rank, facts);
    }
    net.run();
    for (const Rank rank : {1, 2}) {
        CHECK(net.code(rank) == Code::ok);
        CHECK(net[rank].outcome()->bits == net[0].outcome()->bits);
        CHECK(net[rank].outcome()->gone == net[0].outcome()->gone);
    }
}

TEST_CASE(
    "agreements: an archive answers for communicators that are destroyed, the oldest are dropped") {
    Net net(2);
    net.begin_all();
    net.run();
    ClosedAgreements closed;
    closed.keep(7, net[0].last_words());
    AgreementMessage statement(2);
    statement.instance = agreement_instance(1, 0);
    const auto answers = closed.answers(7, statement.encode());
    REQUIRE(answers.size() == 1);
    CHECK(AgreementMessage::decode(answers[0], 2)->decision == net[0].outcome());
    CHECK(closed.answers(8, statement.encode()).empty());
    CHECK(closed.answers(7, AgreementMessage(3).encode()).empty());
    statement.instance = agreement_instance(2, 0);
    CHECK(closed.answers(7, statement.encode()).empty());
    statement.instance = agreement_instance(1, 0);
    CHECK(closed.answers(7, answers[0]).empty());  // decisions are no questions
    for (uint32_t comm = 8; comm < 8 + ClosedAgreements::max_communicators; ++comm)
        closed.keep(comm, net[0].last_words());
    CHECK(closed.answers(7, statement.encode()).empty());
    CHECK_FALSE(closed.answers(8, statement.encode()).empty());
}
