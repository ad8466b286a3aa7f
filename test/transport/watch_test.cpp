// The watch of a host's processes: the deaths that it reports, and the ones that it does not.
#include "transports/shm/watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "net/acceptor.h"
#include "net/socket.h"
#include "support/catch.h"
#include "wait/reactor.h"

namespace tutti::test {
namespace {

constexpr int patience_ms = 60'000;  // only a failure waits this long

bool lacks_futex_waitv() {
    if (futex::can_sleep_on_any()) return false;
    WARN("skipped: this system lacks futex_waitv");
    return true;
}

/// The ranks of a test, as processes of one host.
struct Host {
    explicit Host(Rank ranks) : size(ranks) {
        REQUIRE(::pipe(ready) == 0);
        for (Rank rank = 0; rank < ranks; ++rank) {
            auto listener = net::listen_unix(address(rank));
            REQUIRE(listener);
            listeners.push_back(std::move(*listener));
        }
    }
    ~Host() { ::close(ready[0]), ::close(ready[1]); }
    Host(const Host&) = delete;
    std::string address(Rank rank) const {
        return fmt::format("tutti-watch-{}-{}-{}", maker, number, rank);
    }
    const net::AuthKey key{"a secret", "shm/test"};
    const Rank size;
    const pid_t maker = ::getpid();
    const int number = count++;
    static inline int count = 0;
    // As in a job, all ranks listen before any of them asks for a row.
    std::vector<UniqueFd> listeners;
    int ready[2];  // each child writes a byte once it watches all others
};

/// One rank: its watch, and the listener over which the leader gives rows.
class Watcher {
public:
    Watcher(const Host& host, Rank rank)
        : watch_(rank, host.size, host.key,
                 [this](std::span<const shm::EndedProcess> ended) { note(ended); }) {
        UniqueFd listener(::dup(host.listeners[static_cast<std::size_t>(rank)].get()));
        acceptor_ = std::make_unique<net::Acceptor>(
            reactor_, std::move(listener), host.key,
            [this](UniqueFd socket, Bytes in) {
                const auto hello = shm::decode_hello(in);
                if (hello) watch_.give_row(std::move(socket), *hello);
            },
            net::Acceptor::Options{});
        pump_ = std::thread([this] {
            while (!stop_) reactor_.poll(10);
        });
        std::vector<PeerAddress> peers;
        for (Rank peer = 0; peer < host.size; ++peer)
            if (peer != rank)
                peers.push_back({.rank = peer, .host_id = "", .address = host.address(peer)});
        watch_.start(std::move(peers));
    }
    ~Watcher() {
        watch_.join();
        stop_ = true;
        pump_.join();
    }
    Watcher(const Watcher&) = delete;

    shm::Watch& operator*() { return watch_; }
    shm::Watch* operator->() { return &watch_; }
    std::vector<shm::EndedProcess> ended() {
        const std::lock_guard lock(mutex_);
        return ended_;
    }

private:
    void note(std::span<const shm::EndedProcess> ended) {
        const std::lock_guard lock(mutex_);
        ended_.insert(ended_.end(), ended.begin(), ended.end());
    }

    std::mutex mutex_;
    std::vector<shm::EndedProcess> ended_;
    Reactor reactor_;
    std::unique_ptr<net::Acceptor> acceptor_;
    std::atomic<bool> stop_{false};
    std::thread pump_;
    shm::Watch watch_;
};

bool eventually(const std::function<bool()>& holds) {
    const auto deadline = Deadline::after_ms(patience_ms);
    while (!holds()) {
        if (deadline.passed()) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return true;
}

/// A child process with that rank: lives until it is killed, unless `life` returns.
pid_t start(
    const Host& host, Rank rank, const std::function<void(Watcher&)>& life = [](auto&) {
        for (;;) ::pause();
    }) {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::alarm(120);  // if all else fails
    try {
        Watcher watcher(host, rank);
        if (!eventually(
                [&] { return watcher->watched() == static_cast<std::size_t>(host.size) - 1; }))
            ::_exit(1);
        if (::write(host.ready[1], "", 1) != 1) ::_exit(1);
        life(watcher);
    } catch (...) {
        ::_exit(1);
    }
    ::_exit(0);
}

int end_of(pid_t pid) {
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status;
}

void kill_now(pid_t pid) {
    REQUIRE(::kill(pid, SIGKILL) == 0);
}

/// Waits until that many children watch all other ranks.
void await_ready(const Host& host, int children) {
    for (char byte = 0; children > 0; --children) REQUIRE(::read(host.ready[0], &byte, 1) == 1);
}

bool watches(Watcher& watcher, std::size_t ranks) {
    return eventually([&] { return watcher->watched() == ranks; });
}

TEST_CASE("watch: reports a killed process once, whether it leads or follows") {
    if (lacks_futex_waitv()) return;
    for (const Rank victim : {0, 1}) {
        const Host host(2);
        const pid_t child = start(host, victim);
        Watcher watcher(host, 1 - victim);
        REQUIRE(watches(watcher, 1));
        CHECK_FALSE(watcher->has_ended(victim));
        kill_now(child);
        REQUIRE(eventually([&] { return !watcher.ended().empty(); }));
        CHECK(watcher->has_ended(victim));
        CHECK(WIFSIGNALED(end_of(child)));
        REQUIRE(watches(watcher, 0));
        REQUIRE(watcher.ended().size() == 1);
        CHECK(watcher.ended()[0].rank == victim);
        CHECK(watcher.ended()[0].cause ==
              fmt::format("shm: process {} has ended without a goodbye, as the kernel reports (its "
                          "own log may have the reason)",
                          child));
    }
}

TEST_CASE("watch: every survivor hears of every death, also after the board's leader") {
    if (lacks_futex_waitv()) return;
    const Host host(4);
    // Exits well once both others have been reported to it.
    const auto until_both = [](Watcher& watcher) {
        const auto both = [&] { return watcher.ended().size() == 2; };
        if (!eventually(both) || !watcher->has_ended(0) || !watcher->has_ended(1)) ::_exit(1);
    };
    const pid_t leader = start(host, 0), follower = start(host, 1);
    const pid_t survivor = start(host, 2, until_both);
    Watcher watcher(host, 3);
    REQUIRE(watches(watcher, 3));
    await_ready(host, 3);
    kill_now(leader);
    REQUIRE(eventually([&] { return watcher->has_ended(0); }));
    CHECK_FALSE(watcher->has_ended(1));
    kill_now(follower);
    REQUIRE(eventually([&] { return watcher->has_ended(1); }));
    CHECK(end_of(survivor) == 0);
    CHECK_FALSE(watcher->has_ended(2));
    end_of(leader), end_of(follower);
}

TEST_CASE("watch: a process that leaves in order, then ends, is not reported") {
    if (lacks_futex_waitv()) return;
    const Host host(2);
    const pid_t child = start(host, 1, [](Watcher& watcher) {
        watcher->close(Deadline::after_ms(patience_ms));
        ::kill(::getpid(), SIGKILL);
    });
    Watcher watcher(host, 0);
    CHECK(WIFSIGNALED(end_of(child)));
    REQUIRE(watches(watcher, 0));
    CHECK(watcher.ended().empty());
    CHECK_FALSE(watcher->has_ended(1));
}

TEST_CASE("watch: a forked child neither leaves nor ends for its parent, nor hides its end") {
    if (lacks_futex_waitv()) return;
    const Host host(2);
    int pipe[2];
    REQUIRE(::pipe(pipe) == 0);
    const pid_t child = start(host, 1, [&](Watcher& watcher) {
        const pid_t ends = ::fork();
        if (ends == 0) {
            watcher->close(Deadline::after_ms(patience_ms));
            ::_exit(0);
        }
        end_of(ends);
        const pid_t stays = ::fork();
        if (stays == 0)
            for (;;) ::pause();
        if (::write(pipe[1], &stays, sizeof stays) != sizeof stays) ::_exit(1);
        for (;;) ::pause();
    });
    Watcher watcher(host, 0);
    pid_t grandchild = 0;
    REQUIRE(::read(pipe[0], &grandchild, sizeof grandchild) == sizeof grandchild);
    CHECK(watches(watcher, 1));
    CHECK(watcher.ended().empty());
    kill_now(child);
    CHECK(eventually([&] { return watcher->has_ended(1); }));
    kill_now(grandchild);
    end_of(child);
    ::close(pipe[0]), ::close(pipe[1]);
}

TEST_CASE("watch: a rank that ends while it waits for its row holds nothing up") {
    const Host host(2);  // rank 0 accepts nothing
    Watcher watcher(host, 1);
    const int64_t start_ns = now_ns();
    watcher->close(Deadline::after_ms(patience_ms));
    CHECK(now_ns() - start_ns < int64_t{patience_ms} * 1'000'000);
    CHECK(watcher.ended().empty());
}

TEST_CASE("watch: gives as many ranks a row as the board has, and each rank one") {
    shm::BoardHost board(1000);
    for (Rank rank = 0; rank < static_cast<Rank>(shm::board_most_rows); ++rank) {
        const auto place = board.place(rank);
        REQUIRE(place);
        REQUIRE(place->row == static_cast<uint32_t>(rank));
    }
    CHECK(board.place(7)->row == 7);
    const auto none = board.place(126);
    REQUIRE_FALSE(none);
    CHECK(none.error().code == Code::unsupported);
    CHECK(none.error().message == "all 126 rows of the host's board are taken");
}

}  // namespace
}  // namespace tutti::test
