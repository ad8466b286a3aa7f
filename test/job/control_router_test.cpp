// The router on links that only count what they are given.
#include "job/control_router.h"

#include <set>
#include <vector>

#include "support/catch.h"

using namespace tutti;

namespace {

constexpr Rank size = 4;

struct Links final : ControlLinks {
    bool send(Rank to, ByteView) override { return open.count(to) > 0; }
    void flood(ByteView, Rank) override {}
    bool connected(Rank peer) override { return open.count(peer) > 0; }
    void retire(Rank) override {}
    void finish(Rank) override {}
    std::set<Rank> open;
};

struct Client final : EndpointClient {
    void opened(const ChannelId&, std::unique_ptr<Receiver>) override {}
    bool still_wanted(const ChannelId&) override { return false; }
    void connected(const ChannelId&, Result<Opened>) override {}
    void handle_message(Rank from, const ControlMessage&) override { heard.push_back(from); }
    void peer_lost(Rank peer, const std::string&) override { lost.push_back(peer); }
    void unreachable(Rank peer) override { ended.push_back(peer); }
    bool drive(bool&) override { return false; }
    bool arm(bool) override { return true; }
    std::vector<Rank> heard, lost, ended;
};

struct RoutedRank {
    RoutedRank() { clients.add(0, &client); }
    void refused(Rank peer) {
        router.cut_off(peer, fail_rank(Code::peer_lost, peer, "no process listens").value());
    }

    Links links;
    Assembly assembly{links};
    Detours detours{[] {}};
    ClientTable clients;
    std::atomic<bool> leaving{false};
    ControlRouter router{0, size, {links, assembly, detours, clients, [](Rank) {}, leaving}};
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

TEST_CASE("router: a rank that does not answer has not ended") {
    RoutedRank rank;
    rank.router.cut_off(3, fail(Code::timeout, "rank 3 does not answer").value());
    CHECK(rank.client.ended.empty());
    CHECK_FALSE(rank.router.is_gone(3));
}
