// Tests that a revoke reaches every rank, whatever has failed there, and which failure stands.
#include <algorithm>
#include <random>
#include <string>

#include "control/failure_protocol_ranks.h"

namespace {

using namespace agreement_test;

void revoke(Ranks& ranks, Rank rank) {
    ranks[rank].failure_protocol.overrule(
        {Code::revoked, rank, 0, fmt::format("rank {} revoked the communicator", rank)});
}

void abort(Ranks& ranks, Rank rank) {
    ranks[rank].failure_protocol.overrule(
        {Code::aborted, rank, 0, fmt::format("rank {} called tutti_comm_abort", rank)});
}

Error fatal_error(Ranks& ranks, Rank rank) {
    const auto over = ranks[rank].failure_protocol.fatal_error();
    return over ? over->error : Error{Code::ok, nobody, 0, {}};
}

/// Every operation has ended there and every call is refused, with that error.
void expect_over(Ranks& ranks, Rank rank, Code code) {
    INFO("rank " << rank << " of " << ranks.all.size());
    FailureProtocol& protocol = ranks[rank].failure_protocol;
    const auto over = protocol.fatal_error();
    REQUIRE(over);
    CHECK(over->error.code == code);
    CHECK_FALSE(over->may_receive);
    CHECK(protocol.ended());
    CHECK(protocol.alarm());
    CHECK_FALSE(protocol.failing_epoch());
    for (const uint64_t epoch : {0, 1})
        for (const uint64_t number : {1, 5, 1000}) {
            const uint64_t sequence = numbered(epoch, number).sequence;
            const auto verdict = protocol.verdict(sequence);
            REQUIRE(verdict);
            CHECK(verdict->code == code);
            CHECK(verdict->rank == over->error.rank);
            CHECK(verdict->message == over->error.message);
            CHECK(protocol.tolerated_loss(sequence).rank == nobody);
            const auto refused = protocol.admit(number);
            REQUIRE(!refused);
            CHECK(refused.error().code == code);
        }
}

/// A failure before the revoke, and its part of the revoke's text.
struct Before {
    const char* name;
    void (*happen)(Ranks&);
    std::string text;
};

const Before befores[] = {
    {"nothing", [](Ranks&) {}, ""},
    {"a loss",
     [](Ranks& ranks) {
         ranks.gone.insert(1);
         ranks[5].failure_protocol.peer_lost(1, "it was killed");
     },
     " (after: rank 1 is gone: it was killed)"},
    {"a loss for which an operation has failed",
     [](Ranks& ranks) {
         ranks.gone.insert(1);
         ranks[5].failure_protocol.peer_lost(1, "it was killed");
         ranks[7].failure_protocol.fail_after_loss(numbered(0, 5).sequence);
     },
     " (after: rank 1 is gone: it was killed)"},
    {"a deadline",
     [](Ranks& ranks) {
         ranks[5].failure_protocol.raise(
             {Code::timeout, 2, 0, "timed out after 300 ms", "look at rank 2", 5});
     },
     " (after: rank 5: timed out after 300 ms)"},
    {"exhausted memory",
     [](Ranks& ranks) {
         ranks[5].failure_protocol.raise({Code::no_memory, 5, 0, "there is no memory", "", 5});
     },
     " (after: rank 5: there is no memory)"},
    {"a rank that has left", [](Ranks& ranks) { ranks.leave(1, 4); },
     " (after: rank 1 has left: it left or destroyed its communicator after operation #4)"},
};

}  // namespace

TEST_CASE("revoke: ends every operation on all ranks, whatever has failed before") {
    for (const Before& before : befores) {
        INFO(before.name);
        Ranks ranks(20);
        before.happen(ranks);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            const auto verdict = ranks[rank].failure_protocol.verdict(numbered(0, 5).sequence);
            CHECK((!verdict || verdict->code != Code::revoked));
        }
        revoke(ranks, 12);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            expect_over(ranks, rank, Code::revoked);
            const Error error = fatal_error(ranks, rank);
            CHECK(error.rank == 12);
            CHECK(error.message == "rank 12 revoked the communicator" + before.text);
        }
    }
}

TEST_CASE("revoke: a later failure does not replace it, an abort does") {
    for (const Code later : {Code::timeout, Code::peer_lost, Code::system, Code::no_memory,
                             Code::mismatch, Code::aborted}) {
        INFO(code_name(later));
        Ranks ranks(9);
        revoke(ranks, 4);
        ranks.deliver();
        // An operation that has ended may report `aborted`, too.
        ranks[2].failure_protocol.raise({later, 3, 0, "a consequence"});
        Tag other = numbered(0, 5);
        other.count = 1;
        ranks[1].failure_protocol.raise_mismatch(numbered(0, 5), 3, other);
        ranks[5].failure_protocol.peer_lost(6, "it was killed");
        revoke(ranks, 7);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            expect_over(ranks, rank, Code::revoked);
            CHECK(fatal_error(ranks, rank).rank == 4);
        }
        abort(ranks, 3);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            expect_over(ranks, rank, Code::aborted);
            CHECK(fatal_error(ranks, rank).rank == 3);
        }
        revoke(ranks, 8);
        ranks.deliver();
        for (const Rank rank : ranks.present()) expect_over(ranks, rank, Code::aborted);
    }
}

TEST_CASE("revoke: an abort stands, and one after another failure does not replace that") {
    Ranks ranks(9);
    abort(ranks, 3);
    ranks.deliver();
    revoke(ranks, 4);
    CHECK(ranks.wire.empty());
    for (const Rank rank : ranks.present()) {
        expect_over(ranks, rank, Code::aborted);
        CHECK(fatal_error(ranks, rank).message == "rank 3 called tutti_comm_abort");
    }
    Ranks timed_out(9);
    timed_out[0].failure_protocol.raise({Code::timeout, 2, 0, "timed out"});
    timed_out.deliver();
    abort(timed_out, 3);
    timed_out.deliver();
    for (const Rank rank : timed_out.present())
        CHECK(fatal_error(timed_out, rank).code == Code::timeout);
}

// A rank sends it to each neighbour at most once: a tree of n ranks has n - 1 edges.
TEST_CASE("revoke: its flood ends, also of several at once") {
    constexpr Rank size = 50;
    for (const bool after_a_loss : {false, true})
        for (const std::vector<Rank>& revokers :
             {std::vector<Rank>{0}, {30}, {7, 41}, {0, 1, 2, 3, 30, 31, 32, 49}}) {
            INFO(revokers.size() << " ranks revoke");
            Ranks ranks(size);
            if (after_a_loss) {
                ranks.gone.insert(9);
                ranks[20].failure_protocol.peer_lost(9, "it was killed");
                ranks.deliver();
            }
            for (const Rank rank : revokers) revoke(ranks, rank);
            std::size_t sent = 0;
            for (; !ranks.wire.empty(); ++sent) {
                CHECK(ranks.wire.front().message.code == Code::revoked);
                ranks.deliver(1);
            }
            CHECK(sent >= ranks.present().size() - 1);
            CHECK(sent <= 2 * (ranks.present().size() - 1));
            for (const Rank rank : ranks.present()) {
                expect_over(ranks, rank, Code::revoked);
                // The operations of a rank end at once with the first revoke that reaches it, so a
                // later agreement on one revoker could not change their errors.
                const Rank named = fatal_error(ranks, rank).rank;
                CHECK(std::count(revokers.begin(), revokers.end(), named) == 1);
            }
        }
}

TEST_CASE("revoke: comes before a mismatch that a rank has yet to report") {
    const auto disagree = [](Ranks& ranks, uint64_t number) {
        Tag other = numbered(0, number);
        other.count = 1;
        ranks[0].failure_protocol.raise_mismatch(numbered(0, number), 1, other);
        ranks.deliver();
    };
    SECTION("while the ranks become quiet") {
        Ranks ranks(9);
        disagree(ranks, 5);
        REQUIRE(ranks[0].failure_protocol.verdict(numbered(0, 5).sequence));
        for (const Rank rank : {0, 5}) ranks[rank].failure_protocol.quiet(0, 5);
        ranks.deliver();
        CHECK(ranks[3].next_call(6) == NextCall::wait);
        revoke(ranks, 3);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            expect_over(ranks, rank, Code::revoked);
            CHECK(fatal_error(ranks, rank)
                      .message.starts_with("rank 3 revoked the communicator (after: collective "
                                           "mismatch: rank 0 called"));
        }
        // No new epoch begins, whoever is quiet.
        for (const Rank rank : ranks.present()) ranks[rank].failure_protocol.quiet(0, 5);
        ranks.deliver();
        for (const Rank rank : ranks.present()) CHECK(ranks[rank].resumed == 0);
    }
    SECTION("when it is behind the others") {
        Ranks ranks(3);
        disagree(ranks, 5);
        for (const Rank rank : {0, 1})
            REQUIRE(ranks[rank].failure_protocol.verdict(numbered(0, 5).sequence));
        ranks[2].failure_protocol.quiet(0, 4);
        for (const Rank rank : {0, 1}) ranks[rank].failure_protocol.quiet(0, 5);
        ranks.deliver();
        // Rank 2 has resumed, too, and its next call would get the mismatch.
        REQUIRE(ranks[2].resumed == numbered(1, 5).sequence);
        revoke(ranks, 1);
        ranks.deliver();
        for (const Rank rank : ranks.present()) expect_over(ranks, rank, Code::revoked);
    }
    SECTION("that arrives later, and an abort after that") {
        Ranks ranks(9);
        revoke(ranks, 8);
        disagree(ranks, 5);
        abort(ranks, 7);
        ranks.deliver();
        for (const Rank rank : ranks.present()) expect_over(ranks, rank, Code::aborted);
    }
}

TEST_CASE("revoke: a goodbye carries it, also to ranks that know of a loss") {
    for (const bool lost : {false, true}) {
        Ranks ranks(5);
        if (lost) {
            ranks.gone.insert(3);
            ranks[0].failure_protocol.peer_lost(3, "it was killed");
            ranks.deliver();
        }
        revoke(ranks, 1);
        ranks.wire.clear();  // the goodbye comes first
        ranks.leave(1, 4);
        ranks.deliver();
        for (const Rank rank : ranks.present()) {
            expect_over(ranks, rank, Code::revoked);
            CHECK(fatal_error(ranks, rank).rank == 1);
        }
    }
}

TEST_CASE("revoke: a rank that missed it, and waits after a loss, hears it when it asks") {
    Ranks ranks(4);
    ranks.gone.insert(3);
    ranks[0].failure_protocol.peer_lost(3, "it was killed");
    ranks.deliver();
    revoke(ranks, 0);
    ranks.wire.clear();
    CHECK(ranks[2].failure_protocol.tolerated_loss(numbered(0, 5).sequence).rank == 3);
    ranks[2].failure_protocol.inquiry().stalled(numbered(0, 5));
    ranks.deliver();
    expect_over(ranks, 2, Code::revoked);
}

TEST_CASE("revoke: the goodbye does not wait for a rank that was late before it") {
    Ranks ranks(4);
    ranks[0].failure_protocol.raise({Code::timeout, 3, 0, "timed out"});
    ranks.deliver();
    revoke(ranks, 1);
    ranks.deliver();
    for (const Rank rank : {0, 1, 2})
        CHECK(ranks[rank].failure_protocol.fatal_error()->unresponsive == 3);
    CHECK(ranks[3].failure_protocol.fatal_error()->unresponsive == nobody);
}

// Ranks die, leave, time out and disagree in random order while one or more of them revoke.
TEST_CASE("revoke: reaches every survivor of whatever happens at the same time") {
    const auto seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    for (int trial = 0; trial < 300; ++trial) {
        Ranks ranks(3 + static_cast<Rank>(random() % 40));
        ranks.tells_of_ends = true;
        std::set<Rank> revokers;
        const auto pick = [&] {
            const auto there = ranks.present();
            return there[random() % there.size()];
        };
        std::vector<Rank> died;
        for (auto events = 3 + random() % 8; events > 0; --events) {
            const Rank rank = pick();
            const bool may_end = revokers.count(rank) == 0 && ranks.present().size() > 2;
            switch (random() % 6) {
                case 0:
                    if (may_end) ranks.leave(rank, 5);
                    break;
                case 1:
                    if (!may_end) break;
                    ranks.gone.insert(rank);
                    died.push_back(rank);
                    ranks[pick()].failure_protocol.peer_lost(rank, "it was killed");
                    break;
                case 2:
                    ranks[rank].failure_protocol.raise({Code::timeout, pick(), 0, "timed out"});
                    break;
                case 3: {
                    Tag other = numbered(0, 5);
                    other.count = 1;
                    ranks[rank].failure_protocol.raise_mismatch(numbered(0, 5), pick(), other);
                    break;
                }
                default:
                    revoke(ranks, rank);
                    revokers.insert(rank);
            }
            if (random() % 2 == 0) ranks.deliver(random() % 20);
        }
        if (revokers.empty()) {
            revokers.insert(pick());
            revoke(ranks, *revokers.begin());
        }
        ranks.deliver();
        // The job spreads each loss to every rank.
        for (const Rank rank : ranks.present())
            for (const Rank dead : died) ranks[rank].failure_protocol.peer_lost(dead, "killed");
        ranks.deliver();
        uint64_t number = 6;
        for (int question = 0; question < 5; ++question, ++number)
            for (const Rank rank : ranks.present()) {
                if (fatal_error(ranks, rank).code == Code::revoked) continue;
                ranks[rank].failure_protocol.inquiry().stalled(numbered(0, number));
                ranks.deliver();
            }
        for (const Rank rank : ranks.present()) {
            INFO("trial " << trial << ", died " << died.size());
            expect_over(ranks, rank, Code::revoked);
            CHECK(revokers.count(fatal_error(ranks, rank).rank) == 1);
        }
    }
}
