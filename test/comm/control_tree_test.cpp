// The control tree's connections, one by one.
#include "comm/control_tree.h"

#include <fcntl.h>
#include <sys/socket.h>

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
    ControlTree tree(reactor, {[](Rank, ByteView) {}, [&](Rank, const std::string&) { ++closed; }});
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
