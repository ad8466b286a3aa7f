// The control tree's connections, one by one.
#include "control/control_tree.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "job/early_channels.h"
#include "support/catch.h"

using namespace tutti;

namespace {

using LinkKind = ControlTree::LinkKind;

struct Ends {
    Ends() {
        int fds[2];
        REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
        ours = UniqueFd(fds[0]);
        theirs = UniqueFd(fds[1]);
    }
    UniqueFd ours, theirs;
};

}  // namespace

TEST_CASE("control tree: a hello comes back from its bytes, or says of which version it is") {
    using Hello = ControlTree::Hello;
    const auto same = Hello::decode(Hello{.rank = 5, .kind = LinkKind::detour}.encode());
    REQUIRE(same);
    CHECK((same->version == Hello::current_version && same->rank == 5));
    CHECK(same->kind == LinkKind::detour);
    const Bytes later = ByteWriter().put(uint32_t{7}).put(Rank{3}).put(uint64_t{0}).take();
    const auto other = Hello::decode(later);
    REQUIRE(other);
    CHECK((other->version == 7 && other->rank == 3));
    const Bytes whole = Hello{.rank = 5}.encode();
    for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
        CHECK_FALSE(Hello::decode(ByteView(whole).first(bytes)));
    Bytes unknown = whole;
    unknown.back() = std::byte{2};
    CHECK_FALSE(Hello::decode(unknown));
}

TEST_CASE("control tree: keeps no connection that cannot be watched, and takes the next one") {
    Reactor reactor;
    int closed = 0;
    ControlTree tree(
        reactor, {[](Rank, ByteView) {}, [&](Rank, LinkKind, const std::string&) { ++closed; }});
    for (const LinkKind kind : {LinkKind::branch, LinkKind::detour}) {
        const Rank peer = kind == LinkKind::branch ? 1 : 2;
        // epoll takes no directories.
        const auto refused = tree.attach(peer, UniqueFd(open("/", O_RDONLY | O_CLOEXEC)), kind);
        REQUIRE(!refused);
        CHECK(refused.error().message.find("cannot watch") != std::string::npos);
        CHECK_FALSE(tree.send(peer, as_bytes("lost")));
        CHECK(closed == 0);
        const Bytes message(3);
        Ends ends;
        REQUIRE(tree.attach(peer, std::move(ends.ours), kind));
        CHECK(tree.send(peer, message));
        std::byte got[7];
        CHECK(recv(ends.theirs.get(), got, sizeof got, 0) == sizeof got);
    }
    CHECK(tree.attach(1, std::move(Ends().ours), LinkKind::branch).error().code == Code::invalid);
}

TEST_CASE("control tree: loses a peer that reads nothing, when too many bytes wait for it") {
    Reactor reactor;
    std::string cause;
    constexpr std::size_t most = 3'000'000;
    ControlTree tree(
        reactor,
        {[](Rank, ByteView) {}, [&](Rank, LinkKind, const std::string& told) { cause = told; }},
        {.unsent_control_bytes = most});
    Ends ends;
    REQUIRE(tree.attach(1, std::move(ends.ours), LinkKind::branch));
    const Bytes message(ControlTree::max_message_bytes);
    std::size_t sent = 0;
    // The socket's own buffer takes bytes beyond the limit, hence the loose upper bound.
    while (sent < 100 * most && tree.send(1, message)) sent += message.size();
    CHECK(sent + message.size() > most);
    CHECK(sent < 20 * most);
    CHECK(cause == "");  // its callers may hold locks
    reactor.poll(0);
    CHECK(cause == "it did not read 3000000 bytes of control messages");
    CHECK_FALSE(tree.send(1, message));
}

TEST_CASE("control tree: takes a few connections of one peer, not any number") {
    Reactor reactor;
    ControlTree tree(reactor, {[](Rank, ByteView) {}, [](Rank, LinkKind, const std::string&) {}},
                     {.control_connections = 3});
    std::vector<Ends> ends(4);
    for (std::size_t i = 0; i < 3; ++i)
        REQUIRE(tree.attach(2, std::move(ends[i].ours), LinkKind::detour));
    const auto refused = tree.attach(2, std::move(ends[3].ours), LinkKind::detour);
    REQUIRE(!refused);
    CHECK(refused.error().rank == 2);
    // A connection that has ended no longer counts.
    ends[0].theirs.reset();
    reactor.poll(0);
    Ends another;
    CHECK(tree.attach(2, std::move(another.ours), LinkKind::detour));
}

TEST_CASE("early channels: one peer's are bounded, and count no more once they are taken") {
    EarlyChannels early(2);
    for (int round = 0; round < 2; ++round) {
        CHECK(early.keep({.peer = 1, .comm = 7, .lane = 0}, nullptr));
        CHECK(early.keep({.peer = 1, .comm = 7, .lane = 1}, nullptr));
        CHECK_FALSE(early.keep({.peer = 1, .comm = 8, .lane = 0}, nullptr));
        CHECK(early.keep({.peer = 2, .comm = 7, .lane = 0}, nullptr));
        CHECK(early.take_all().size() == 3);
    }
}

TEST_CASE("control tree: tells whose connection has ended, and of which kind it was") {
    Reactor reactor;
    std::vector<std::pair<Rank, LinkKind>> closed;
    ControlTree tree(reactor, {[](Rank, ByteView) {},
                               [&](Rank peer, LinkKind kind, const std::string&) {
                                   closed.emplace_back(peer, kind);
                               }});
    for (const LinkKind kind : {LinkKind::branch, LinkKind::detour}) {
        const Rank peer = kind == LinkKind::branch ? 1 : 2;
        Ends ends;
        REQUIRE(tree.attach(peer, std::move(ends.ours), kind));
        ends.theirs.reset();
        reactor.poll(1000);
        REQUIRE(closed.size() == static_cast<std::size_t>(peer));
        CHECK(closed.back() == std::pair(peer, kind));
        CHECK_FALSE(tree.send(peer, Bytes(3)));
    }
}

TEST_CASE("control tree: a peer that leaves hears only that this rank leaves, too") {
    Reactor reactor;
    ControlTree tree(reactor, {[](Rank, ByteView) {}, [](Rank, LinkKind, const std::string&) {}});
    Ends ends;
    REQUIRE(tree.attach(1, std::move(ends.ours), LinkKind::branch));
    tree.retire(1);
    CHECK_FALSE(tree.send(1, as_bytes("news")));
    tree.flood(as_bytes("loss"), nobody);
    tree.flood_last(as_bytes("leaving"));
    const Bytes expected = ByteWriter().put_text("leaving").take();
    Bytes got(64);
    const auto bytes = recv(ends.theirs.get(), got.data(), got.size(), 0);
    REQUIRE(bytes == static_cast<ssize_t>(expected.size()));
    CHECK(std::equal(expected.begin(), expected.end(), got.begin()));
}
