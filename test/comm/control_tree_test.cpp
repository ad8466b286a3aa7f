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
