// shm between two real processes: the data, the speed (printed), and the news of a death.
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <functional>

#include "net/socket.h"
#include "transport/closing.h"
#include "transport/endpoints.h"

namespace tutti::test {
namespace {

/// One of two processes, with the address of the other's endpoint.
struct Side {
    explicit Side(Rank rank, int socket) : endpoint(shm_kind, rank, 2), other(endpoint.address) {
        const auto deadline = Deadline::after_ms(patience_ms);
        REQUIRE(net::send_frame(socket, as_bytes(endpoint.address.address), deadline));
        const auto answer = net::recv_frame(socket, 200, deadline);
        REQUIRE(answer);
        other.rank = 1 - rank;
        other.address = as_text(*answer);
    }
    std::unique_ptr<Receiver> receiver(uint16_t lane) {
        std::unique_ptr<Receiver> out;
        REQUIRE(eventually({&endpoint}, [&] {
            out = endpoint.sink.take({.peer = other.rank, .comm = 7, .lane = lane});
            return out != nullptr;
        }));
        return out;
    }
    std::unique_ptr<Sender> sender(uint16_t lane) {
        auto opened = endpoint.transport->open({.peer = other.rank, .comm = 7, .lane = lane}, other,
                                               Deadline::after_ms(patience_ms));
        REQUIRE(opened);
        return std::move(*opened);
    }

    TestEndpoint endpoint;
    PeerAddress other;
};

/// Runs body as rank 1 in a child and as rank 0 here; returns the child's wait status.
int in_two_processes(const std::function<void(Side&)>& parent,
                     const std::function<void(Side&)>& child) {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    UniqueFd mine(sockets[pid == 0 ? 1 : 0]);
    UniqueFd(sockets[pid == 0 ? 0 : 1]).reset();
    if (pid == 0) {
        ::alarm(120);  // if all else fails
        try {
            Side side(1, mine.get());
            child(side);
        } catch (...) {
            ::_exit(1);
        }
        ::_exit(0);
    }
    {
        Side side(0, mine.get());
        parent(side);
    }
    int status = -1;
    REQUIRE(::waitpid(pid, &status, 0) == pid);
    return status;
}

constexpr std::size_t most_bytes = 128 * 1024;

// Rank 0 sends first; every message is sent back and checked.
void ping_pong(Side& side, uint64_t messages, std::size_t bytes) {
    auto sender = side.sender(static_cast<uint16_t>(bytes % 1000));
    auto receiver = side.receiver(static_cast<uint16_t>(bytes % 1000));
    const bool first = side.endpoint.address.rank == 0;
    const auto send = [&](uint64_t number) {
        std::byte* place = nullptr;
        REQUIRE(eventually({}, [&] { return (place = sender->reserve(bytes)) != nullptr; }));
        std::memset(place, static_cast<int>(number % 251), bytes);
        sender->commit(make_tag(number), bytes);
    };
    const int64_t start_ns = now_ns();
    for (uint64_t number = 1; number <= messages; ++number) {
        if (first) send(number);
        Receiver::PeekedMessage message;
        const auto arrived = [&] {
            message = receiver->peek(make_tag(number), bytes);
            return message.data != nullptr;
        };
        for (int spin = 0; spin < 2000 && !arrived(); ++spin) cpu_relax();
        REQUIRE(eventually({}, arrived));
        REQUIRE(message.tag == make_tag(number));
        REQUIRE(message.data[0] == static_cast<std::byte>(number % 251));
        REQUIRE(message.data[bytes - 1] == static_cast<std::byte>(number % 251));
        receiver->release();
        if (!first) send(number);
    }
    if (first)
        std::printf("shm channel, two processes: %zu bytes there and back %.0f ns\n", bytes,
                    static_cast<double>(now_ns() - start_ns) / static_cast<double>(messages));
}

TEST_CASE("shm: carries messages between processes") {
    const auto play = [](Side& side) {
        for (const std::size_t bytes : {8UL, 4096UL, most_bytes}) ping_pong(side, 500, bytes);
    };
    REQUIRE(in_two_processes(play, play) == 0);
}

void flat_sums(Side& side, std::size_t count, uint64_t operations) {
    const Rank me = side.endpoint.address.rank;
    const auto find = [&](Rank rank) -> Result<PeerAddress> {
        return rank == me ? side.endpoint.address : side.other;
    };
    auto group = side.endpoint.transport->intrinsics()->join(
        {.comm = static_cast<uint32_t>(count), .rank = me, .size = 2, .members = {}, .find = find},
        Deadline::after_ms(patience_ms));
    REQUIRE(group);
    auto bound =
        (*group)->bind({.count = count, .reducer = *Reducer::make(Dtype::float32, Op::sum)});
    REQUIRE(bound);
    Operation& sum = **bound;
    std::vector<float> in(count), out(count);
    int64_t start_ns = 0;
    uint64_t wrong = 0;
    for (uint64_t number = 1; number <= operations; ++number) {
        if (number == operations / 10) start_ns = now_ns();
        in.front() = static_cast<float>(number % 1000);
        in.back() = static_cast<float>(me + 1);
        sum.start(make_tag(number), in.data(), out.data());
        const auto done = [&] { return sum.progress() == Code::ok; };
        bool finished = false;
        for (int spin = 0; spin < 2000 && !(finished = done()); ++spin) cpu_relax();
        if (!finished) REQUIRE(eventually({}, done));
        wrong += out.front() != static_cast<float>(2 * (number % 1000)) || out.back() != 3;
    }
    REQUIRE(wrong == 0);
    if (me == 0)
        std::printf(
            "flat allreduce, two processes: %zu bytes %.0f ns\n", count * sizeof(float),
            static_cast<double>(now_ns() - start_ns) / (0.9 * static_cast<double>(operations)));
}

TEST_CASE("flat: sums between processes") {
    const auto play = [](Side& side) {
        flat_sums(side, 2, 20'000);
        flat_sums(side, 256, 3'000);
        flat_sums(side, 16'384, 300);
    };
    REQUIRE(in_two_processes(play, play) == 0);
}

TEST_CASE("shm: names the rank whose process was killed, after its last message was read") {
    const auto parent = [](Side& side) {
        auto sender = side.sender(0);
        auto receiver = side.receiver(0);
        REQUIRE(eventually({&side.endpoint}, [&] { return !side.endpoint.sink.lost().empty(); }));
        const auto lost = side.endpoint.sink.lost();
        REQUIRE(lost.size() == 1);
        REQUIRE(lost[0].first == 1);
        REQUIRE(lost[0].second.find("without a goodbye") != std::string::npos);
        REQUIRE(sender->health() == Code::peer_lost);
        REQUIRE(receiver->health() == Code::ok);
        const auto message = receiver->peek(make_tag(1), most_bytes);
        REQUIRE(message.data != nullptr);
        REQUIRE(message.data[most_bytes - 1] == std::byte{42});
        receiver->release();
        REQUIRE(receiver->health() == Code::peer_lost);
    };
    const auto child = [](Side& side) {
        auto receiver = side.receiver(0);
        auto sender = side.sender(0);
        std::byte* place = sender->reserve(most_bytes);
        std::memset(place, 42, most_bytes);
        sender->commit(make_tag(1), most_bytes);
        ::kill(::getpid(), SIGKILL);
    };
    const int status = in_two_processes(parent, child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("shm: calls again when the other side closes in mid-handshake") {
    TestEndpoint endpoint(shm_kind, 1, 2);
    const std::string name = fmt::format("tutti-test-closing-{}", ::getpid());
    auto listener = net::listen_unix(name);
    REQUIRE(listener);
    const Closing closing(std::move(*listener));
    const auto opened = endpoint.transport->open(
        {.peer = 0, .comm = 7, .lane = 2}, {.rank = 0, .host_id = "this host", .address = name},
        Deadline::after_ms(patience_ms));
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().code == Code::auth);
    REQUIRE(closing.calls() == 10);
}

}  // namespace
}  // namespace tutti::test
