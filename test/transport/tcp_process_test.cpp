// TCP between real processes and between many threads: the news of a death, and work that is done
// by whoever comes first.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "transport/lane_driver.h"
#include "transport/tcp_fixture.h"

namespace tutti::test {
namespace {

/// A child that connects as rank 1, sends one message of each size on lane 0, says so and waits to
/// be killed.
pid_t start_child(const PeerAddress& parent, int say_fd) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::alarm(120);
    try {
        TestEndpoint endpoint(tcp_kind, 1, 2);
        auto sender = endpoint.transport->open({.peer = 0, .comm = 7, .lane = 0}, parent, soon());
        if (!sender) ::_exit(1);
        const Buffer data = pattern(100'000, 1);
        (*sender)->push(make_tag(1), data.data(), data.size());
        while (!(*sender)->drained()) endpoint.turn();
        if (::write(say_fd, "!", 1) != 1) ::_exit(1);
        for (;;) ::pause();
    } catch (...) {
    }
    ::_exit(1);
}

TEST_CASE("tcp: names the rank whose process was killed, once, after its last message") {
    int says[2];
    REQUIRE(::pipe(says) == 0);
    UniqueFd hear(says[0]), say(says[1]);
    PeerAddress address;
    // The child must not inherit threads' locks: it is started before the endpoint's thread, and
    // learns the address through a socket.
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    UniqueFd mine(sockets[0]), theirs(sockets[1]);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        const auto text = net::recv_frame(theirs.get(), 200, soon());
        if (!text) ::_exit(1);
        const PeerAddress parent{0, "this host", std::string(as_text(*text))};
        // In a process of its own, so that this one can wait for it without an endpoint's threads.
        const pid_t sender = start_child(parent, say.get());
        REQUIRE(sender > 0);
        if (!net::send_all(theirs.get(), std::as_bytes(std::span(&sender, 1)), soon())) ::_exit(1);
        int status = 0;
        ::waitpid(sender, &status, 0);
        ::_exit(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? 0 : 1);
    }
    TestEndpoint endpoint(tcp_kind, 0, 2);
    REQUIRE(net::send_frame(mine.get(), as_bytes(endpoint.address.address), soon()));
    pid_t sender = 0;
    REQUIRE(net::recv_all(mine.get(), std::as_writable_bytes(std::span(&sender, 1)), soon()));
    auto receiver = await_receiver(endpoint, 1, 0);
    char word = 0;
    // Its message may need us to read before the kernel has all of it.
    pollfd said{.fd = hear.get(), .events = POLLIN, .revents = 0};
    REQUIRE(eventually({&endpoint}, [&] { return ::poll(&said, 1, 0) == 1; }));
    REQUIRE(::read(hear.get(), &word, 1) == 1);
    REQUIRE(::kill(sender, SIGKILL) == 0);

    const int64_t killed_ns = now_ns();
    REQUIRE(eventually({&endpoint}, [&] { return !endpoint.sink.lost().empty(); }));
    const double seconds = static_cast<double>(now_ns() - killed_ns) / 1e9;
    INFO("noticed after " << seconds << " s");
    REQUIRE(seconds < 20);
    const Buffer data = pattern(100'000, 1);
    REQUIRE(receiver->health() == Code::ok);
    REQUIRE(holds(receiver->peek(make_tag(1), data.size()), data));
    receiver->release();
    REQUIRE(receiver->health() == Code::peer_lost);
    for (int i = 0; i < 50; ++i) endpoint.turn();
    const auto lost = endpoint.sink.lost();
    REQUIRE(lost.size() == 1);
    REQUIRE(lost[0].first == 1);
    REQUIRE_FALSE(lost[0].second.empty());
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    REQUIRE(status == 0);
}

TEST_CASE("tcp: closes at the deadline when the peer does not read") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(open_frame(0)));
    await_receiver(endpoint, 1, 0);
    std::vector<std::unique_ptr<Sender>> senders;
    const Buffer data = pattern(large, 1);
    for (uint16_t lane = 0; lane < 20; ++lane) {
        auto sender =
            endpoint.transport->open({.peer = 1, .comm = 7, .lane = lane}, {.rank = 1}, soon());
        REQUIRE(sender);
        while ((*sender)->can_push()) (*sender)->push(make_tag(1), data.data(), data.size());
        senders.push_back(std::move(*sender));
    }
    REQUIRE_FALSE(senders.back()->drained());
    endpoint.transport->close(Deadline::after_ms(100));
    REQUIRE(senders.back()->drained());
    REQUIRE(senders.back()->health() == Code::peer_lost);
}

// ---- threads -----------------------------------------------------------------------------------

TEST_CASE("tcp: keeps every byte when several threads drive the lanes of one connection") {
    drive_lanes(tcp_kind, large, {4000, 1500, 200});
}

// The sleeper has no thread of its own on the sockets: only the doorbell can wake it.
int shared_doorbell = -1;

TEST_CASE("tcp: rings the doorbell when another thread moved what a sleeper waits for") {
    UniqueFd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    shared_doorbell = bell.get();
    const JoinedTransport kind{"tcp", [](const TransportContext& context) {
                                   TransportContext mine = context;
                                   if (mine.rank == 0) mine.doorbell_fd = shared_doorbell;
                                   return make_tcp_transport(mine);
                               }};
    Duo duo(kind);
    auto there = duo.open(0);
    auto back = Duo::open(duo.b, duo.a, 0);
    std::atomic<bool> stop{false};
    std::thread mover([&] {
        while (!stop) {
            duo.a.transport->progress();
            duo.b.transport->progress();
            ::usleep(100);
        }
    });
    const auto rung = [&] {
        pollfd wait{.fd = bell.get(), .events = POLLIN, .revents = 0};
        const bool yes = ::poll(&wait, 1, patience_ms) == 1;
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = ::read(bell.get(), &count, sizeof count);
        return yes;
    };
    const Buffer data = pattern(100, 1);
    for (uint64_t i = 0; i < 20; ++i) {
        back.receiver->arm(true);
        if (!back.receiver->peek(make_tag(i), data.size()).data) {
            std::thread other([&] {
                while (!back.sender->can_push()) cpu_relax();
                back.sender->push(make_tag(i), data.data(), data.size());
            });
            const bool woken = rung();
            other.join();
            REQUIRE(woken);
        }
        back.receiver->arm(false);
        REQUIRE(eventually(
            {}, [&] { return back.receiver->peek(make_tag(i), data.size()).data != nullptr; }));
        back.receiver->release();
    }
    // A sender without credits.
    for (uint64_t i = 0; i < tcp::credits_per_channel; ++i)
        there.sender->push(make_tag(i), data.data(), data.size());
    REQUIRE_FALSE(there.sender->can_push());
    there.sender->arm(true);
    std::thread reader([&] {
        for (uint64_t i = 0; i < tcp::credits_per_channel;) {
            if (!there.receiver->peek(make_tag(i), data.size()).data) continue;
            there.receiver->release();
            ++i;
        }
    });
    while (!there.sender->can_push() && rung()) {
    }
    const bool can_push = there.sender->can_push();
    there.sender->arm(false);
    reader.join();
    stop = true;
    mover.join();
    REQUIRE(can_push);
}

}  // namespace
}  // namespace tutti::test
