// The failure protocol among ranks without a network: every rank's words go into one queue.
#include <limits>

#include "control/failure_protocol_ranks.h"
#include "job/early_messages.h"

namespace {

using namespace agreement_test;

// `sees` finds that `differs` called something else in that operation, and all hear of it.
void see_mismatch(Ranks& ranks, Rank sees, Rank differs, uint64_t epoch, uint64_t number) {
    Tag other = numbered(epoch, number);
    other.count = 1;
    ranks[sees].failure_protocol.raise_mismatch(numbered(epoch, number), differs, other);
    ranks.deliver();
}

// Rank 0 sees that rank 1 called something else in operation 5; every rank hears of it once.
void disagree(Ranks& ranks, uint64_t epoch) {
    see_mismatch(ranks, 0, 1, epoch, 5);
    for (auto& rank : ranks.all) {
        const auto verdict = rank->failure_protocol.verdict(numbered(epoch, 5).sequence);
        REQUIRE(verdict);
        CHECK(verdict->code == Code::mismatch);
        CHECK(!rank->failure_protocol.verdict(numbered(epoch, 4).sequence));
        CHECK(rank->next_call() == NextCall::wait);
    }
}

}  // namespace

TEST_CASE("after a mismatch the ranks go on when all of them are quiet") {
    Ranks ranks(7);
    disagree(ranks, 0);
    for (auto& rank : ranks.all) {
        CHECK(rank->resumed == 0);
        REQUIRE(rank->failure_protocol.failing_epoch() == std::optional<uint64_t>(0));
        rank->failure_protocol.quiet(0, 5);
        ranks.deliver();
    }
    for (auto& rank : ranks.all) {
        CHECK(rank->resumed == numbered(1, 5).sequence);
        CHECK(!rank->failure_protocol.failing_epoch());
        CHECK(!rank->failure_protocol.alarm());
        CHECK(rank->next_call() == NextCall::proceed);
    }
}

// A quiet report may come from a check before the mismatch: it counts for its own epoch alone.
TEST_CASE("an old look at what runs makes no rank quiet") {
    Ranks ranks(3);
    disagree(ranks, 0);
    for (auto& rank : ranks.all) rank->failure_protocol.quiet(0, 5);
    ranks.deliver();
    disagree(ranks, 1);
    ranks[0].failure_protocol.quiet(1, 5);
    ranks[1].failure_protocol.quiet(1, 5);
    ranks[2].failure_protocol.quiet(0, 5);
    ranks.deliver();
    for (auto& rank : ranks.all)
        CHECK(rank->failure_protocol.failing_epoch() == std::optional<uint64_t>(1));
    ranks[2].failure_protocol.quiet(1, 5);
    ranks.deliver();
    for (auto& rank : ranks.all) CHECK(rank->resumed == numbered(2, 5).sequence);
}

// No rank waits for the last rank of a scan, so others may be two calls ahead of it at a mismatch.
TEST_CASE("a rank that is behind a mismatch catches up before it hears of it") {
    Ranks ranks(3);
    see_mismatch(ranks, 0, 1, 0, 5);
    for (Rank r : {0, 1}) {
        REQUIRE(ranks[r].failure_protocol.verdict(numbered(0, 5).sequence));
        ranks[r].failure_protocol.quiet(0, 5);
    }
    ranks[2].failure_protocol.quiet(0, 3);
    ranks.deliver();
    CHECK(ranks[2].next_call(4) == NextCall::proceed);
    CHECK(!ranks[2].failure_protocol.verdict(numbered(0, 4).sequence));
    for (auto& rank : ranks.all) CHECK(rank->resumed == 0);
    // It has run the last good operation: now the others may go on, and its next call is told.
    ranks[2].failure_protocol.quiet(0, 4);
    ranks.deliver();
    for (auto& rank : ranks.all) CHECK(rank->resumed == numbered(1, 5).sequence);
    CHECK(ranks[2].next_call(6) == NextCall::refused);
    CHECK(ranks[2].next_call(6) == NextCall::proceed);
}

// A rank that hears of a mismatch before it makes the call is refused it, and never runs that
// number.
TEST_CASE("a rank that was refused one mismatch is not behind the next") {
    Ranks ranks(3);
    disagree(ranks, 0);
    ranks[0].failure_protocol.quiet(0, 5);
    ranks[1].failure_protocol.quiet(0, 5);
    ranks[2].failure_protocol.quiet(0, 4);
    ranks.deliver();
    for (auto& rank : ranks.all) REQUIRE(rank->resumed == numbered(1, 5).sequence);
    see_mismatch(ranks, 0, 1, 1, 6);
    ranks[2].failure_protocol.quiet(1, 4);
    CHECK(ranks[2].next_call(6) == NextCall::refused);
    ranks[0].failure_protocol.quiet(1, 6);
    ranks[1].failure_protocol.quiet(1, 6);
    ranks.deliver();
    for (auto& rank : ranks.all) CHECK(rank->resumed == numbered(2, 6).sequence);
}

// Each of them tells its caller, who would hear of the mismatch once more than it is counted.
TEST_CASE("a call waits while operations that were issued before it have still to fail") {
    Ranks ranks(3);
    see_mismatch(ranks, 0, 1, 0, 5);
    CHECK(ranks[2].next_call(7) == NextCall::wait);
    for (const uint64_t issued : {5, 6})
        REQUIRE(ranks[2].failure_protocol.verdict(numbered(0, issued).sequence));
    ranks[2].failure_protocol.quiet(0, 6);
    for (Rank r : {0, 1}) {
        REQUIRE(ranks[r].failure_protocol.verdict(numbered(0, 5).sequence));
        ranks[r].failure_protocol.quiet(0, 5);
    }
    CHECK(ranks[2].next_call(7) == NextCall::wait);
    ranks.deliver();
    CHECK(ranks[2].next_call(7) == NextCall::proceed);
    for (Rank r : {0, 1}) {
        CHECK(ranks[r].next_call(7) == NextCall::refused);
        CHECK(ranks[r].next_call(7) == NextCall::proceed);
    }
}

// The abort may come from a rank that gives up because of the mismatch, and must not hide it.
TEST_CASE("ranks hear of a mismatch before an abort that followed it") {
    Ranks ranks(3);
    see_mismatch(ranks, 0, 1, 0, 5);
    ranks[0].failure_protocol.raise({Code::aborted, 0, 0, "enough"});
    ranks.deliver();
    for (const Rank rank : {0, 1}) {  // in the operation
        const auto verdict = ranks[rank].failure_protocol.verdict(numbered(0, 5).sequence);
        REQUIRE(verdict);
        CHECK(verdict->code == Code::mismatch);
    }
    for (const Rank rank : {2, 0, 1}) {  // rank 2 has yet to call it
        if (rank == 2) {
            const auto refused = ranks[rank].failure_protocol.admit(5);
            REQUIRE(!refused);
            CHECK(refused.error().code == Code::mismatch);
        }
        const auto refused = ranks[rank].failure_protocol.admit(6);
        REQUIRE(!refused);
        CHECK(refused.error().code == Code::aborted);
    }
}

// The others may have disagreed twice before it makes the first of those calls.
TEST_CASE("a rank that is behind two mismatches hears of both, one a call") {
    Ranks ranks(3);
    for (uint64_t epoch : {0, 1}) {
        see_mismatch(ranks, 0, 1, epoch, 5 + epoch);
        for (Rank r : {0, 1}) {
            REQUIRE(ranks[r].failure_protocol.verdict(numbered(epoch, 5 + epoch).sequence));
            ranks[r].failure_protocol.quiet(epoch, 5 + epoch);
        }
        ranks[2].failure_protocol.quiet(epoch, 4);
        ranks.deliver();
        for (auto& rank : ranks.all)
            REQUIRE(rank->resumed == numbered(epoch + 1, 5 + epoch).sequence);
    }
    CHECK(ranks[2].failure_protocol.alarm());
    CHECK(ranks[2].next_call(7) == NextCall::refused);
    CHECK(ranks[2].failure_protocol.alarm());
    CHECK(ranks[2].next_call(7) == NextCall::refused);
    CHECK(!ranks[2].failure_protocol.alarm());
    for (auto& rank : ranks.all) CHECK(rank->next_call(7) == NextCall::proceed);
}

// Rank 0 had issued three, rank 1 the one that differs, rank 2 none of them.
TEST_CASE("what a rank had issued after a mismatch fails on every rank") {
    Ranks ranks(3);
    see_mismatch(ranks, 0, 1, 0, 5);
    for (const uint64_t number : {6, 5, 7})
        REQUIRE(ranks[0].failure_protocol.verdict(numbered(0, number).sequence));
    REQUIRE(ranks[1].failure_protocol.verdict(numbered(0, 5).sequence));
    ranks[0].failure_protocol.quiet(0, 7);
    ranks[1].failure_protocol.quiet(0, 5);
    ranks[2].failure_protocol.quiet(0, 4);
    ranks.deliver();
    for (Rank r : {0, 1, 2}) {
        CHECK(ranks[r].resumed == numbered(1, 7).sequence);
        for (Rank call = 0; call < (r == 0 ? 0 : r + 1); ++call) {
            const auto refused = ranks[r].failure_protocol.admit(8);
            REQUIRE(!refused);
            CHECK(refused.error().code == Code::mismatch);
        }
        CHECK(ranks[r].next_call(8) == NextCall::proceed);
        CHECK(!ranks[r].failure_protocol.alarm());
    }
}

// A broadcast's root may have returned, and hears of it in its next call: that costs nobody else
// one.
TEST_CASE(
    "a rank that hears of a mismatch in a later call hears of it once, and so do the others") {
    Ranks ranks(3);
    see_mismatch(ranks, 1, 2, 0, 5);
    REQUIRE(ranks[0].failure_protocol.verdict(numbered(0, 6).sequence));
    for (Rank r : {1, 2}) REQUIRE(ranks[r].failure_protocol.verdict(numbered(0, 5).sequence));
    ranks[0].failure_protocol.quiet(0, 6);
    for (Rank r : {1, 2}) ranks[r].failure_protocol.quiet(0, 5);
    ranks.deliver();
    for (auto& rank : ranks.all) {
        CHECK(rank->resumed == numbered(1, 6).sequence);
        CHECK(rank->next_call(7) == NextCall::proceed);
    }
}

TEST_CASE("strict: what comes before a mismatch is still agreed on") {
    Ranks ranks(3);
    Tag different = numbered(0, 2);
    different.count = 1;
    for (Rank r : {0, 1}) {
        ranks[r].failure_protocol.strict().propose(numbered(0, 1));
        ranks[r].failure_protocol.strict().propose(r == 0 ? numbered(0, 2) : different);
    }
    ranks.deliver();
    REQUIRE(ranks[0].failure_protocol.verdict(numbered(0, 2).sequence));
    ranks[2].failure_protocol.strict().propose(numbered(0, 1));
    ranks.deliver();
    for (auto& rank : ranks.all) CHECK(rank->failure_protocol.strict().agreed(1));
}

TEST_CASE("agreement: news is of a failure and of a rank that there is, whatever it says") {
    ControlMessage message;
    message.kind = ControlMessage::Kind::failed;
    message.text = "why";
    for (const Code code : {Code::ok, Code::in_progress, static_cast<Code>(200)}) {
        Ranks ranks(3);
        message.code = code;
        message.rank = 3;
        const auto decoded = ControlMessage::decode(message.encode());
        REQUIRE(decoded);
        ranks[0].failure_protocol.receive(1, *decoded);
        const auto over = ranks[0].failure_protocol.fatal_error();
        REQUIRE(over);
        CHECK(over->error.code == Code::system);
        CHECK(over->error.rank == nobody);
        CHECK(over->error.message == "why");
    }
    Ranks ranks(3);
    message.kind = ControlMessage::Kind::bye;
    for (const Rank rank : {3, -1, INT32_MAX}) {
        message.rank = rank;
        ranks[0].failure_protocol.receive(1, message);
    }
    CHECK_FALSE(ranks[0].failure_protocol.has_left(FailureProtocol::any_rank));
    CHECK_FALSE(ranks[0].failure_protocol.alarm());
}

TEST_CASE(
    "early news: keeps the latest of each sender, and in all, and gives out what is asked for") {
    EarlyMessages early;
    const auto tell = [&](Rank from, uint32_t comm, uint64_t number) {
        ControlMessage message;
        message.comm = comm;
        message.tag.sequence = number;
        early.keep(from, message);
    };
    for (uint64_t number = 1; number <= EarlyMessages::most_of_one + 5; ++number)
        tell(1, 7, number);
    tell(2, 8, 1);
    tell(2, 7, 2);
    auto seven = early.take(7);
    REQUIRE(seven.size() == EarlyMessages::most_of_one + 1);
    for (std::size_t i = 0; i < EarlyMessages::most_of_one; ++i) {
        REQUIRE(seven[i].first == 1);
        REQUIRE(seven[i].second.tag.sequence == i + 6);
    }
    REQUIRE(seven.back().first == 2);
    REQUIRE(early.take(7).empty());
    REQUIRE(early.take(8).size() == 1);

    constexpr auto senders = static_cast<Rank>(EarlyMessages::most) + 100;
    for (Rank from = 0; from < senders; ++from) tell(from, 9, 1);
    const auto nine = early.take(9);
    REQUIRE(nine.size() == EarlyMessages::most);
    REQUIRE(nine.front().first == 100);
}

// In the control tree of 20 ranks, 3 is a child of 0, 11 of 1 and 18 of 2.
TEST_CASE("who is late: all are named, and those that have come since are not") {
    Ranks ranks(20);
    const Tag tag = numbered(0, 5);
    const std::set<Rank> late{3, 11, 18};
    for (Rank r = 0; r < 20; ++r)
        if (late.count(r) == 0) ranks[r].call(tag);
    const auto ask = [&](Rank asks) {
        ranks[asks].failure_protocol.inquiry().stalled(tag);
        ranks.deliver();
        // Questions about one operation are not passed on in crowds.
        ranks.pause(60);
    };
    ask(5);
    for (auto& rank : ranks.all) {
        CHECK(rank->failure_protocol.inquiry().late(tag.sequence).ranks ==
              std::vector<Rank>{3, 11, 18});
        CHECK(rank->failure_protocol.inquiry().late(tag.sequence).answered);
        CHECK(rank->failure_protocol.inquiry().late(tag.sequence + 1).ranks.empty());
    }
    for (const Rank came : {3, 18}) ranks[came].call(tag);
    ask(12);
    for (auto& rank : ranks.all) {
        CHECK(rank->failure_protocol.inquiry().late(tag.sequence).ranks == std::vector<Rank>{11});
        CHECK(rank->failure_protocol.inquiry().late(tag.sequence).answered);
    }
    // Without a late rank the inquiry says the same as before any rank has answered.
    ranks[11].call(tag);
    ask(5);
    for (auto& rank : ranks.all)
        CHECK(!rank->failure_protocol.inquiry().late(tag.sequence).answered);
}

// One of 20 ranks is silent: the root, a rank with children of its own, or one without.
TEST_CASE("a rank that does not answer: is named, and no rank that only waits for it") {
    const auto tag = numbered(0, 5);
    for (const Rank hung : {0, 1, 3}) {
        Ranks ranks(20);
        for (auto& rank : ranks.all) rank->call(tag);
        ranks.gone.insert(hung);
        const auto ask = [&] {
            for (const Rank r : ranks.present()) ranks[r].failure_protocol.inquiry().stalled(tag);
            ranks.deliver();
            ranks.pause(150);
        };
        ask();
        for (const Rank r : ranks.present())
            CHECK(ranks[r].failure_protocol.inquiry().late(tag.sequence).silent_for(0).empty());
        ask();
        for (const Rank r : ranks.present())
            CHECK(ranks[r].failure_protocol.inquiry().late(tag.sequence).silent_for(140) ==
                  std::vector<Rank>{hung});
        // It goes on, and is asked again.
        ranks.gone.clear();
        ask();
        ask();
        for (auto& rank : ranks.all)
            CHECK(rank->failure_protocol.inquiry().late(tag.sequence).silent_for(0).empty());
    }
}

TEST_CASE("who is late: is asked more rarely, and once more before the deadline") {
    constexpr int64_t ms = 1'000'000;
    const auto questions = [](int64_t timeout_ms) {
        std::vector<int64_t> at;
        for (int64_t now = Inquiry::ask_at(ms, ms, timeout_ms);
             now < std::min<int64_t>(timeout_ms, 20'000) * ms;
             now = Inquiry::ask_at(ms, now, timeout_ms))
            at.push_back(now / ms - 1);
        return at;
    };
    using Times = std::vector<int64_t>;
    CHECK(questions(20'000) ==
          Times{100, 500, 2500, 4500, 6500, 8500, 10'500, 12'500, 14'500, 16'500, 18'500, 19'500});
    CHECK(questions(2000) == Times{100, 500, 1500});
    CHECK(questions(1000) == Times{100, 500, 750});
    CHECK(questions(80) == Times{60});
    CHECK(questions(std::numeric_limits<int64_t>::max()).size() == 11);
    CHECK(Inquiry::ask_at(ms, ms, 0) == 101 * ms);
}

TEST_CASE("after a mismatch: those are late that have yet to call what comes before it") {
    Ranks ranks(20);
    // Rank 3 was refused the call that differs; rank 11 has not even made the one before.
    for (Rank r = 0; r < 20; ++r) {
        if (r != 11) ranks[r].call(numbered(0, 4));
        if (r != 11 && r != 3) ranks[r].call(numbered(0, 5));
    }
    see_mismatch(ranks, 0, 1, 0, 5);
    ranks[12].failure_protocol.inquiry().ask_who_is_behind();
    ranks.deliver();
    for (auto& rank : ranks.all) {
        CHECK(rank->failure_protocol.inquiry().behind().ranks == std::vector<Rank>{11});
        CHECK(rank->failure_protocol.inquiry().behind().answered);
    }
}

// In the control tree of 100 ranks, 1 to 8 are children of 0, 9 to 16 of 1, 73 to 80 of 9.
TEST_CASE("ranks that leave: a goodbye after a loss names the rank that was lost") {
    Ranks ranks(3);
    ranks[1].failure_protocol.peer_lost(2, "killed");
    ranks.wire.clear();  // the goodbye comes before what was said of the loss
    ranks.leave(1, 4);
    ranks.deliver();
    const auto verdict = ranks[0].failure_protocol.verdict(numbered(0, 5).sequence);
    REQUIRE(verdict);
    CHECK(verdict->code == Code::peer_lost);
    CHECK(verdict->rank == 2);
}

TEST_CASE("agreement: a loss ends the operations that lack something, and those after them") {
    Ranks ranks(4);
    ranks.gone.insert(3);
    ranks[0].failure_protocol.peer_lost(3, "killed");
    ranks.deliver();
    for (const Rank r : ranks.present()) {
        CHECK(ranks[r].failure_protocol.tolerated_loss(numbered(0, 5).sequence).rank == 3);
        CHECK(ranks[r].next_call(5) == NextCall::proceed);
    }
    ranks[1].failure_protocol.fail_after_loss(numbered(0, 6).sequence);
    ranks.deliver();
    for (const Rank r : ranks.present()) {
        CHECK(ranks[r].failure_protocol.tolerated_loss(numbered(0, 5).sequence).rank == 3);
        CHECK(ranks[r].failure_protocol.tolerated_loss(numbered(0, 6).sequence).rank == nobody);
        CHECK(ranks[r].next_call(5) == NextCall::proceed);
        CHECK(ranks[r].next_call(6) == NextCall::refused);
    }
    ranks[2].failure_protocol.raise({Code::aborted, 2, 0, "aborted"});
    ranks.deliver();
    for (const Rank r : ranks.present())
        CHECK(ranks[r].failure_protocol.tolerated_loss(numbered(0, 5).sequence).rank == nobody);
}

TEST_CASE("agreement: the time for a lost rank's data is short where none can be on its way") {
    Ranks ranks(3);
    ranks[0].ended_here = 2;
    ranks[1].failure_protocol.peer_lost(2, "killed");
    ranks.gone.insert(2);
    ranks.deliver();
    for (const auto& [rank, grace_ns] : {std::pair{0, 1'000'000L}, std::pair{1, 20'000'000L}}) {
        FailureProtocol& protocol = ranks[rank].failure_protocol;
        CHECK(protocol.tolerated_loss(numbered(0, 5).sequence).grace_ns == grace_ns);
        CHECK(protocol.fatal_error()->may_receive);
        CHECK(protocol.fatal_error()->grace_ns == grace_ns);
    }
}

TEST_CASE("ranks that leave: news go round them") {
    const auto leaving = GENERATE(std::vector<Rank>{1}, std::vector<Rank>{1, 9},
                                  std::vector<Rank>{9, 1}, std::vector<Rank>{0},
                                  std::vector<Rank>{0, 1, 9, 2}, std::vector<Rank>{2, 5, 1, 0});
    const bool at_once = GENERATE(false, true);
    Ranks ranks(100);
    for (const Rank rank : leaving) {
        ranks.leave(rank, 5);
        if (!at_once) ranks.deliver();
    }
    // If neighbours leave at once, only one side of the tree learns of each; not checked here.
    const bool crossing = at_once && leaving.size() > 1;
    ranks.deliver();
    const Rank aborts = ranks.present().back();
    for (const Rank rank : ranks.present()) {
        INFO("rank " << rank);
        for (const Rank gone : leaving)
            CHECK((crossing || ranks[rank].failure_protocol.has_left(gone)));
        CHECK(!ranks[rank].failure_protocol.fatal_error());
    }
    ranks[aborts].failure_protocol.raise({Code::aborted, aborts, 0, "enough"});
    ranks.deliver();
    for (const Rank rank : ranks.present()) {
        INFO("rank " << rank);
        CHECK((crossing || ranks[rank].failure_protocol.fatal_error()));
    }
}

TEST_CASE("ranks that leave: what they drop between that and their bye is said again") {
    SECTION("a failure") {
        for (const Rank aborts : {0, 12}) {
            Ranks ranks(100);
            ranks.leave(1, 5);
            ranks[aborts].failure_protocol.raise({Code::aborted, aborts, 0, "enough"});
            ranks.deliver();
            for (const Rank rank : ranks.present()) {
                INFO("rank " << rank << ", aborted by rank " << aborts);
                CHECK(ranks[rank].failure_protocol.fatal_error());
            }
        }
    }
    SECTION("another's bye") {
        for (const Rank second : {5, 20, 99}) {
            Ranks ranks(100);
            ranks.leave(1, 5);
            ranks.leave(second, 5);
            ranks.deliver();
            for (const Rank rank : ranks.present()) {
                INFO("rank " << rank << " of rank " << second);
                CHECK(ranks[rank].failure_protocol.has_left(1));
                CHECK(ranks[rank].failure_protocol.has_left(second));
            }
        }
    }
    SECTION("a mismatch") {
        Ranks ranks(100);
        ranks.leave(1, 5);
        Tag other = numbered(0, 5);
        other.count = 1;
        ranks[0].failure_protocol.raise_mismatch(numbered(0, 5), 2, other);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            INFO("rank " << rank);
            CHECK(ranks[rank].failure_protocol.failing_epoch());
        }
    }
}

TEST_CASE("ranks that leave: nobody waits for them to be quiet") {
    // Before they have said that they are quiet, or after; numbers of the others' are not used
    // again where they had gone ahead.
    const bool quiet_before = GENERATE(false, true);
    const Rank leaver = GENERATE(0, 1, 9, 50);
    const uint64_t last = GENERATE(5, 7);
    INFO("rank " << leaver << " after #" << last << (quiet_before ? ", quiet before" : ""));
    Ranks ranks(100);
    see_mismatch(ranks, 0, 2, 0, 5);
    if (quiet_before) {
        ranks[leaver].failure_protocol.quiet(0, last);
        // The leaver's children report too late: it has left before their messages arrive.
        for (const Rank rank : ranks.present())
            if (rank > 1 && rank != leaver) ranks[rank].failure_protocol.quiet(0, 5);
    }
    ranks.leave(leaver, last);
    ranks.deliver();
    for (const Rank rank : ranks.present()) ranks[rank].failure_protocol.quiet(0, 5);
    ranks.deliver();
    for (const Rank rank : ranks.present()) {
        INFO("rank " << rank);
        CHECK(ranks[rank].resumed == numbered(1, last).sequence);
        CHECK(!ranks[rank].failure_protocol.failing_epoch());
    }
}

TEST_CASE("ranks that leave: an abort is news also where a call was refused because of them") {
    Ranks ranks(3);
    ranks.leave(1, 5);
    ranks.deliver();
    CHECK(ranks[0].next_call(6) == NextCall::refused);
    CHECK_FALSE(ranks[0].failure_protocol.fatal_error());  // messages between those that stay go on
    ranks[0].failure_protocol.raise({Code::aborted, 0, 0, "enough"});
    ranks.deliver();
    for (const Rank rank : {0, 2}) {
        REQUIRE(ranks[rank].failure_protocol.fatal_error());
        CHECK(ranks[rank].failure_protocol.fatal_error()->error.code == Code::aborted);
    }
}
