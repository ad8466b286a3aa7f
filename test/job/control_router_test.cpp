// The router on links that only count what they are given.
#include "job/control_router.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/clock.h"
#include "support/catch.h"

using namespace tutti;

namespace {

constexpr Rank size = 4;

struct Links final : ControlLinks {
    bool send(Rank to, ByteView) override { return open.count(to) > 0; }
    void flood(ByteView, Rank) override {}
    bool connected(Rank peer) override { return open.count(peer) > 0; }
    void retire(Rank peer) override { open.erase(peer); }
    void finish(Rank) override {}
    std::set<Rank> open;
};

struct Client final : EndpointClient {
    void opened(const ChannelId&, std::unique_ptr<Receiver>) override {}
    bool still_wanted(const ChannelId&) override { return false; }
    void connected(const ChannelId&, Result<Opened>) override {}
    void handle_message(Rank from, const ControlMessage&) override { heard.push_back(from); }
    void peer_lost(Rank peer, const std::string&, Rank accuser) override {
        if (accuser != nobody) accusations.push_back({accuser, peer});
        if (std::count(lost.begin(), lost.end(), peer) == 0) lost.push_back(peer);
    }
    void unreachable(Rank peer) override { ended.push_back(peer); }
    bool drive(bool&) override { return false; }
    bool arm(bool) override { return true; }
    std::vector<Rank> heard, lost, ended;
    std::vector<Accusation> accusations;
};

struct RoutedRank {
    explicit RoutedRank(Rank number = 0) : rank(number) { clients.add(0, &client); }
    void refused(Rank peer) {
        router.cut_off(peer, fail_rank(Code::peer_lost, peer, "no process listens").value());
    }

    const Rank rank;
    Links links;
    Assembly assembly{links};
    Detours detours{[] {}};
    ClientTable clients;
    std::atomic<bool> leaving{false};
    Heartbeat heartbeat{1000};
    ControlRouter router{
        rank,
        size,
        {links, assembly, detours, clients, [](Rank) {}, leaving, heartbeat, [](int64_t) {}}};
    Client client;
};

}  // namespace

TEST_CASE("router: a rank that listens no more has ended once its last link has") {
    RoutedRank rank;
    rank.refused(3);
    CHECK(rank.client.ended == std::vector<Rank>{3});

    // Its goodbye may come over the link that is still open.
    rank.links.open = {2};
    rank.refused(2);
    CHECK(rank.client.ended == std::vector<Rank>{3});
    const ControlMessage bye{.kind = ControlMessage::Kind::bye, .rank = 2};
    rank.router.handle_message(
        2, TreeMessage{.topic = TreeMessage::Topic::control, .to = 0, .from = 2, .control = bye}
               .encode());
    CHECK(rank.client.heard == std::vector<Rank>{2});
    rank.links.open = {};
    rank.router.link_closed(2, ControlLinks::LinkKind::detour, "closed");
    CHECK(rank.client.ended == std::vector<Rank>{3, 2});
    CHECK(rank.client.lost.empty());
}

TEST_CASE("router: a lost rank passes no message on, although its connection has not ended") {
    RoutedRank rank(1);
    rank.links.open = {0, 2};
    rank.router.mark_lost(0, "the kernel says so");
    const ControlMessage bye{.kind = ControlMessage::Kind::bye, .rank = 1};
    rank.router.send(3, bye);  // rank 0 is on the way there
    CHECK(rank.detours.next() == 3);
}

TEST_CASE("router: a removed communicator says goodbye again to a rank that asks who is late") {
    RoutedRank rank;
    using Kind = ControlMessage::Kind;
    const auto ask = [&](uint32_t comm, Kind kind) {
        return rank.clients.handle_message(2, {.kind = kind, .comm = comm, .rank = 1}, true);
    };
    rank.clients.remove(5, {.bye = ControlMessage{.kind = Kind::bye,
                                                  .comm = 5,
                                                  .rank = 0,
                                                  .code = Code::peer_lost,
                                                  .tag = {.sequence = 7}}});
    rank.clients.remove(6);
    for (const Kind kind : {Kind::stall, Kind::query}) {
        const auto answers = ask(5, kind);
        REQUIRE(answers.size() == 1);
        CHECK(answers[0].kind == Kind::bye);
        CHECK(answers[0].tag.sequence == 7);
        CHECK(answers[0].code == Code::peer_lost);
    }
    CHECK(ask(5, Kind::late).empty());
    CHECK(ask(6, Kind::stall).empty());
}

TEST_CASE("router: a rank that does not answer has not ended") {
    RoutedRank rank;
    rank.router.cut_off(3, fail(Code::timeout, "rank 3 does not answer").value());
    CHECK(rank.client.ended.empty());
    CHECK_FALSE(rank.router.is_gone(3));
}

namespace {

Bytes accusation(Rank accuser, Rank accused) {
    return TreeMessage{.topic = TreeMessage::Topic::accusation,
                       .from = accuser,
                       .lost = accused,
                       .cause = "it has not answered"}
        .encode();
}

const Bytes beat = TreeMessage{.topic = TreeMessage::Topic::beat}.encode();

/// Sets the clock of the process.
struct Clock {
    Clock() { virtual_now_ns = &now; }
    ~Clock() { virtual_now_ns = nullptr; }
    int64_t now = 1'000'000'000'000;
};

/// The heartbeat's ticks come in time.
void run(RoutedRank& rank, Clock& clock, int64_t for_ms) {
    for (; for_ms > 0; --for_ms) {
        clock.now += 1'000'000;
        if (clock.now >= rank.heartbeat.due_ns()) rank.router.pulse(false);
    }
}

}  // namespace

TEST_CASE("router: a neighbour that stops beating is lost without a proof") {
    Clock clock;
    RoutedRank rank;
    rank.links.open = {1, 2};
    rank.router.pulse(true);
    rank.router.handle_message(1, beat);
    rank.router.handle_message(2, beat);
    run(rank, clock, 900);
    rank.router.handle_message(2, beat);
    CHECK(rank.client.lost.empty());
    run(rank, clock, 200);
    CHECK(rank.client.lost == std::vector<Rank>{1});
    CHECK(rank.client.accusations == std::vector<Accusation>{{0, 1}});
    CHECK(rank.router.is_gone(1));

    // No process listens there any more: that is no second loss.
    rank.refused(1);
    CHECK(rank.client.ended.empty());
    CHECK(rank.client.lost == std::vector<Rank>{1});
}

TEST_CASE("router: a rank that others accuse is lost itself, unless it has accused them before") {
    RoutedRank accused;
    accused.router.handle_message(2, accusation(2, 0));
    CHECK(accused.client.lost == std::vector<Rank>{0});

    RoutedRank first;
    first.router.handle_message(1, accusation(1, 2));
    CHECK(first.client.lost == std::vector<Rank>{2});
    first.router.handle_message(2, accusation(2, 0));
    first.router.handle_message(2, accusation(2, 3));
    CHECK(first.client.lost == std::vector<Rank>{2});
    // A further accuser of a rank that is lost already is a further fact.
    first.router.handle_message(3, accusation(3, 2));
    CHECK(first.client.accusations == std::vector<Accusation>{{1, 2}, {3, 2}});
}

TEST_CASE("router: a process that did not run takes closed connections for no proof") {
    for (const int64_t stopped_ms : {400, 3000}) {
        INFO("stopped for " << stopped_ms << " ms");
        Clock clock;
        RoutedRank rank;
        rank.router.pulse(true);
        run(rank, clock, 2000);
        clock.now += stopped_ms * 1'000'000;
        rank.router.mark_lost(1, "its data connection was closed");
        rank.refused(2);
        const bool in_doubt = stopped_ms > 500;
        CHECK(rank.client.lost.size() == (in_doubt ? 2 : 1));
        CHECK(rank.client.accusations.size() == (in_doubt ? 2 : 0));
        CHECK(rank.client.ended.size() == (in_doubt ? 0 : 1));
    }
}

TEST_CASE("router: a rank that lets nobody connect for a heartbeat is silent") {
    const Error silent = fail_rank(Code::timeout, 3, "it has not let rank 0 connect").value();
    RoutedRank old_job;
    old_job.router.cut_off(3, silent);
    CHECK(old_job.client.lost.empty());

    RoutedRank rank;
    rank.router.pulse(true);
    rank.router.cut_off(3, silent);
    CHECK(rank.client.accusations == std::vector<Accusation>{{0, 3}});
}
