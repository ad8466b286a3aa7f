#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "net_fixture.h"

using namespace tutti;
using namespace tutti::net;

namespace {

UniqueFd file_with(const std::string& text) {
    UniqueFd fd(memfd_create("tutti-test", MFD_CLOEXEC));
    REQUIRE(write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return fd;
}

std::string text_of(int fd) {
    char text[64];
    const ssize_t got = pread(fd, text, sizeof text, 0);
    return got < 0 ? "unreadable" : std::string(text, static_cast<std::size_t>(got));
}

int open_fds() {
    int count = 0;
    for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
}

}  // namespace

TEST_CASE("descriptors: arrive in order, close-on-exec, with their frame") {
    auto [a, b] = socket_pair();
    for (const int count : {0, 1, 5, 253}) {
        INFO(count);
        std::vector<UniqueFd> files;
        std::vector<int> raw;
        for (int i = 0; i < count; ++i) {
            files.push_back(file_with("file " + std::to_string(i)));
            raw.push_back(files.back().get());
        }
        REQUIRE(send_fds(a.get(), raw, as_bytes("with these"), soon()));
        const auto message = recv_fds(b.get(), 100, soon());
        REQUIRE(message);
        CHECK(as_text(message->body) == "with these");
        REQUIRE(message->fds.size() == static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) {
            const int fd = message->fds[static_cast<std::size_t>(i)].get();
            CHECK(text_of(fd) == "file " + std::to_string(i));
            CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
        }
    }
}

TEST_CASE("descriptors: messages that follow one another keep to themselves") {
    auto [a, b] = socket_pair();
    const UniqueFd first = file_with("first"), second = file_with("second");
    const int one = first.get(), two = second.get();
    REQUIRE(send_fds(a.get(), std::span(&one, 1), as_bytes("1"), soon()));
    REQUIRE(send_fds(a.get(), std::span(&two, 1), as_bytes("2"), soon()));
    for (const std::string expected : {"first", "second"}) {
        const auto message = recv_fds(b.get(), 100, soon());
        REQUIRE(message);
        REQUIRE(message->fds.size() == 1);
        CHECK(text_of(message->fds[0].get()) == expected);
    }
}

TEST_CASE("descriptors: too many, too long or closed is an error that leaks none") {
    auto [a, b] = socket_pair();
    const int before = open_fds();
    const std::vector<int> many(254, a.get());
    CHECK(send_fds(a.get(), many, {}, soon()).error().code == Code::invalid);

    const int one = a.get();
    REQUIRE(send_fds(a.get(), std::span(&one, 1), as_bytes("too long"), soon()));
    CHECK(recv_fds(b.get(), 3, soon()).error().code == Code::invalid);
    CHECK(open_fds() == before);

    CHECK(recv_fds(a.get(), 3, Deadline::after_ms(20)).error().code == Code::timeout);
    a.reset();
    std::byte rest[8];
    REQUIRE(recv_all(b.get(), rest, soon()));
    CHECK(recv_fds(b.get(), 3, soon()).error().code == Code::peer_lost);
}

TEST_CASE("descriptors: a receiver at its limit says how to raise it") {
    auto [a, b] = socket_pair();
    const std::vector<int> some(20, a.get());
    REQUIRE(send_fds(a.get(), some, as_bytes("x"), soon()));
    const UniqueFd probe(dup(a.get()));  // the lowest free number: the limit leaves room for 4
    rlimit limit{}, low{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = static_cast<rlim_t>(probe.get()) + 4;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
    const auto message = recv_fds(b.get(), 100, soon());
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    REQUIRE(!message);
    CHECK(message.error().sys_errno == EMFILE);
    CHECK(contains(message.error().advice, "ulimit -n"));
}

TEST_CASE("descriptors: with too many on their way the sender waits until some have arrived") {
    constexpr int messages = 100;
    auto [a, b] = socket_pair();
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        rlimit few{};
        getrlimit(RLIMIT_NOFILE, &few);
        few.rlim_cur = messages / 2;
        // The kernel does not limit root's descriptors in flight, so become another user. Some user
        // namespaces have no other one (EINVAL); the kernel limits their root.
        if (setrlimit(RLIMIT_NOFILE, &few) != 0) _exit(2);
        if (geteuid() == 0 && setuid(65533) != 0 && errno != EINVAL) _exit(3);
        const int one = a.get();
        for (int i = 0; i < messages; ++i)
            if (!send_fds(a.get(), std::span(&one, 1), as_bytes("x"), soon())) _exit(1);
        _exit(0);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    for (int i = 0; i < messages; ++i) {
        const auto message = recv_fds(b.get(), 100, soon());
        REQUIRE(message);
        REQUIRE(message->fds.size() == 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    REQUIRE(WEXITSTATUS(status) == 0);
}
