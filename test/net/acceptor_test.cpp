#include "net/acceptor.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

#include "net_fixture.h"

using namespace tutti;
using namespace tutti::net;

namespace {

const AuthKey key{"s3cret", "test/job"};

// An acceptor on a port of the system's choice, polled by a thread.
class Host {
public:
    explicit Host(Acceptor::Options options = {}) {
        auto listener = listen_tcp({.host = "127.0.0.1", .port = 0});
        REQUIRE(listener);
        at_ = {.host = "127.0.0.1", .port = local_port(listener->get()).value()};
        acceptor_ = std::make_unique<Acceptor>(
            reactor_, std::move(*listener), key,
            [this](UniqueFd fd, Bytes hello) {
                hellos_ += std::string(as_text(hello)) + ";";
                accepted_.push_back(std::move(fd));
                ++count_;
            },
            options);
        thread_ = std::thread([this] {
            while (!stop_) turns_ += reactor_.poll(20);
        });
    }
    ~Host() {
        stop_ = true;
        thread_.join();
    }

    UniqueFd connect() const {
        auto fd = connect_tcp(at_, {.deadline = soon()});
        REQUIRE(fd);
        return std::move(*fd);
    }
    Result<> introduce_as(std::string_view hello) const {
        const UniqueFd fd = connect();
        return introduce(fd.get(), key, as_bytes(hello), soon());
    }
    bool wait_for(int count) const {
        const Deadline deadline = soon();
        while (count_ < count && !deadline.passed())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return count_ == count;
    }
    int turns() const { return turns_; }
    bool has_turned_away(uint64_t count) const {
        const Deadline deadline = soon();
        while (acceptor_->turned_away() < count && !deadline.passed())
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return acceptor_->turned_away() == count;
    }
    // Only once wait_for() has seen them arrive.
    const std::string& hellos() const { return hellos_; }
    int accepted_fd(std::size_t i) const { return accepted_.at(i).get(); }

private:
    Reactor reactor_;
    HostPort at_;
    std::unique_ptr<Acceptor> acceptor_;
    std::atomic<bool> stop_{false};
    std::atomic<int> count_{0}, turns_{0};
    std::string hellos_;
    std::vector<UniqueFd> accepted_;
    std::thread thread_;
};

// An honest client's first message: the protocol's name and a nonce.
Bytes first_message() {
    Bytes out;
    for (const char c : std::string("tutti/1\n")) out.push_back(static_cast<std::byte>(c));
    const Bytes nonce = *random_bytes(32);
    out.insert(out.end(), nonce.begin(), nonce.end());
    return out;
}

}  // namespace

TEST_CASE("acceptor: hands over who knows the secret, with the hello and nothing more read") {
    Host host;
    const UniqueFd fd = host.connect();
    REQUIRE(introduce(fd.get(), key, as_bytes("I am 3"), soon()));
    REQUIRE(send_frame(fd.get(), as_bytes("what follows"), soon()));
    REQUIRE(host.wait_for(1));
    CHECK(host.hellos() == "I am 3;");
    CHECK(as_text(recv_frame(host.accepted_fd(0), 100, soon()).value()) == "what follows");
    CHECK((fcntl(host.accepted_fd(0), F_GETFL) & O_NONBLOCK) != 0);
    CHECK((fcntl(host.accepted_fd(0), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("acceptor: takes an empty hello and one of the largest size, refuses a longer one") {
    Host host({.handshake_timeout_ms = 600'000});  // closed for its length, not for its slowness
    REQUIRE(host.introduce_as(""));
    REQUIRE(host.wait_for(1));
    REQUIRE(host.introduce_as(std::string(4096, 'h')));
    REQUIRE(host.wait_for(2));
    CHECK(host.introduce_as(std::string(4097, 'h')).error().code == Code::invalid);

    const UniqueFd fd = host.connect();
    REQUIRE(authenticate_client(fd.get(), key, soon()));
    ByteWriter writer;
    writer.put(uint32_t{4097});
    REQUIRE(send_all(fd.get(), writer.take(), soon()));
    CHECK(is_closed(fd.get(), soon()));
    CHECK(host.wait_for(2));
}

TEST_CASE("acceptor: turns away who does not know the secret, and serves on") {
    Host host;
    {
        const UniqueFd passer_by = host.connect();  // that speaks another language
        REQUIRE(send_all(passer_by.get(), Bytes(40), soon()));
        CHECK(is_closed(passer_by.get(), soon()));
    }
    {
        const UniqueFd stranger = host.connect();
        const auto refused = introduce(stranger.get(), {"wrong", "test/job"}, {}, soon());
        REQUIRE(!refused);
        CHECK(refused.error().code == Code::auth);
    }
    // This client ignores the server's proof, which it cannot check, and guesses its own.
    const UniqueFd guesser = host.connect();
    Bytes guess = first_message();
    REQUIRE(send_all(guesser.get(), guess, soon()));
    Bytes answer(64);
    REQUIRE(recv_all(guesser.get(), answer, soon()));
    REQUIRE(send_all(guesser.get(), *random_bytes(32), soon()));
    CHECK(is_closed(guesser.get(), soon()));
    REQUIRE(host.introduce_as("friend"));
    REQUIRE(host.wait_for(1));
    CHECK(host.hellos() == "friend;");
    CHECK(host.has_turned_away(2));
}

TEST_CASE(
    "acceptor: strangers hold few descriptors of the process, and members get in among them") {
    Host hosts[2];
    rlimit limit{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const int idle = static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 6, 400));
    const auto most = static_cast<int>(std::min<rlim_t>(limit.rlim_cur / 8, 64));
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < idle; ++i) {
        strangers.push_back(hosts[i % 2].connect());
        if (i % 3 == 0) (void)send_all(strangers.back().get(), first_message(), soon());
    }
    for (int member = 1; member <= 5; ++member)
        for (Host& host : hosts) {
            CHECK(host.introduce_as("member"));
            CHECK(host.wait_for(member));
        }
    // Each acceptor may have four beyond what they have together.
    const auto open_ones = [&] {
        return std::count_if(strangers.begin(), strangers.end(), [](const UniqueFd& fd) {
            pollfd end{.fd = fd.get(), .events = POLLRDHUP, .revents = 0};
            return ::poll(&end, 1, 0) == 0 || (end.revents & POLLRDHUP) == 0;
        });
    };
    const Deadline deadline = soon();
    while (open_ones() > most + 8 && !deadline.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(open_ones() <= most + 8);
}

TEST_CASE("acceptor: a connection cut at any byte of the handshake does no harm") {
    Host host;
    const Bytes first = first_message();
    for (std::size_t bytes = 0; bytes <= first.size(); ++bytes) {
        const UniqueFd fd = host.connect();
        REQUIRE(send_all(fd.get(), ByteView(first).first(bytes), soon()));
    }
    for (std::size_t bytes = 0; bytes <= 12; ++bytes) {
        const UniqueFd fd = host.connect();
        REQUIRE(authenticate_client(fd.get(), key, soon()));
        ByteWriter hello;
        hello.put_text("8 bytes.");
        REQUIRE(send_all(fd.get(), ByteView(hello.take()).first(bytes < 12 ? bytes : 11), soon()));
    }
    REQUIRE(host.introduce_as("whole"));
    REQUIRE(host.wait_for(1));
    CHECK(host.hellos() == "whole;");
}

TEST_CASE("acceptor: a handshake that arrives byte by byte succeeds") {
    Host host;
    auto [outside, inside] = socket_pair();
    Result<> result;
    std::thread client([&, fd = std::move(outside)] {
        result = introduce(fd.get(), key, as_bytes("slowly"), soon());
    });
    const UniqueFd to_host = host.connect();
    const std::size_t up[] = {40, 32, 10}, down[] = {64, 1, 0};
    for (int part = 0; part < 3; ++part) {
        Bytes bytes(up[part]), answer(down[part]);
        REQUIRE(recv_all(inside.get(), bytes, soon()));
        for (const std::byte b : bytes) {
            REQUIRE(send_all(to_host.get(), {&b, 1}, soon()));
            std::this_thread::yield();
        }
        REQUIRE(recv_all(to_host.get(), answer, soon()));
        REQUIRE(send_all(inside.get(), answer, soon()));
    }
    client.join();
    REQUIRE(result);
    REQUIRE(host.wait_for(1));
    CHECK(host.hellos() == "slowly;");
}

TEST_CASE("acceptor: drops the silent at their time without any other activity") {
    constexpr int time_ms = 100;
    Host host({.handshake_timeout_ms = time_ms});
    const UniqueFd silent = host.connect();
    const UniqueFd stuck = host.connect();
    REQUIRE(send_all(stuck.get(), as_bytes("tutti"), soon()));
    CHECK(is_closed(silent.get(), soon()));
    CHECK(is_closed(stuck.get(), soon()));
    // On a busy machine a client may be too slow, and calls again.
    const Deadline patience = soon();
    UniqueFd no_hello, kept;
    bool is_known = false;
    while (!is_known && !patience.passed()) {
        no_hello = host.connect();
        is_known = authenticate_client(no_hello.get(), key, soon()).has_value();
    }
    REQUIRE(is_known);
    CHECK(is_closed(no_hello.get(), soon()));
    // A connection that was handed over in time stays open.
    std::byte scratch[1];
    const auto stays_open = [&] {
        const auto nothing = recv_all(kept.get(), scratch, Deadline::after_ms(3 * time_ms));
        return nothing.error().code == Code::timeout;
    };
    do kept = host.connect();
    while (!(introduce(kept.get(), key, as_bytes("kept"), soon()) && stays_open()) &&
           !patience.passed());
    REQUIRE(host.wait_for(1));
    CHECK(stays_open());
}

TEST_CASE("acceptor: with too many handshakes open the oldest goes") {
    Host host({.max_strangers = 4});
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 4; ++i) silent.push_back(host.connect());
    CHECK(host.introduce_as("fifth"));
    CHECK(is_closed(silent.front().get(), soon()));
    std::byte scratch[1];
    CHECK(recv_all(silent.back().get(), scratch, Deadline::after_ms(50)).error().code ==
          Code::timeout);
}

/// Captures standard error while it lives.
class Diagnosed {
public:
    Diagnosed() : file_(std::tmpfile()), before_(dup(STDERR_FILENO)) {
        dup2(fileno(file_), STDERR_FILENO);
    }
    ~Diagnosed() {
        dup2(before_.get(), STDERR_FILENO);
        std::fclose(file_);
    }
    std::string text() const {
        std::string out(4096, ' ');
        const ssize_t got = pread(fileno(file_), out.data(), out.size(), 0);
        return out.substr(0, got < 0 ? 0 : static_cast<std::size_t>(got));
    }

private:
    std::FILE* const file_;
    const UniqueFd before_;
};

TEST_CASE("acceptor: out of file descriptors it says so and rests, and recovers") {
    const Diagnosed diagnosed;
    Host host;
    std::vector<UniqueFd> waiting;
    for (int i = 0; i < 3; ++i) waiting.push_back(host.connect());
    const UniqueFd friendly = host.connect();
    // The client's side of everything is open; from here no descriptor is left for the server's.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    rlimit limit{}, low{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    UniqueFd late(socket(AF_INET, SOCK_STREAM, 0));
    low = limit;
    low.rlim_cur = 3;
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    getpeername(friendly.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    const int connected = connect(late.get(), reinterpret_cast<sockaddr*>(&address), bytes);
    const Deadline patience = soon();
    while (!contains(diagnosed.text(), "ulimit") && !patience.passed())
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const int64_t start_ns = now_ns();
    const int before = host.turns();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const int turns = host.turns() - before;
    const int64_t took_ms = ns_to_ms(now_ns() - start_ns);
    const int64_t starving_ns = Acceptor::starving_ns();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    REQUIRE(connected == 0);
    CHECK(turns < took_ms / 3);
    CHECK(starving_ns > 0);
    const std::string said = diagnosed.text();
    CHECK(said.find("(ulimit -n)") != std::string::npos);
    CHECK(said.find("ulimit") == said.rfind("ulimit"));  // once
    CHECK(introduce(late.get(), key, as_bytes("late"), soon()));
    CHECK(host.wait_for(1));
    CHECK(Acceptor::starving_ns() == 0);
}

TEST_CASE(
    "acceptor: out of file descriptors it drops no handshake that goes on, only who dawdles") {
    const Diagnosed diagnosed;
    // A tenth of this is how long a handshake may take before it makes room.
    const bool patient = GENERATE(true, false);
    Host host({.handshake_timeout_ms = patient ? 600'000 : 10'000});
    const UniqueFd known = host.connect();
    REQUIRE(authenticate_client(known.get(), key, soon()));
    const UniqueFd stranger = host.connect();
    REQUIRE(send_all(stranger.get(), first_message(), soon()));
    Bytes answer(64);
    REQUIRE(recv_all(stranger.get(), answer, soon()));
    const UniqueFd late(socket(AF_INET, SOCK_STREAM, 0));
    rlimit limit{}, low{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    low = limit;
    low.rlim_cur = 3;
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    getpeername(stranger.get(), reinterpret_cast<sockaddr*>(&address), &bytes);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
    const int connected = connect(late.get(), reinterpret_cast<sockaddr*>(&address), bytes);
    std::byte scratch[1];
    const auto heard =
        recv_all(stranger.get(), scratch, patient ? Deadline::after_ms(300) : soon());
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    REQUIRE(connected == 0);
    CHECK(heard.error().code == (patient ? Code::timeout : Code::peer_lost));
    REQUIRE(send_frame(known.get(), as_bytes("known"), soon()));
    REQUIRE(introduce(late.get(), key, as_bytes("late"), soon()));
    CHECK(host.wait_for(2));
}

TEST_CASE("redial: calls ten times in all while the other side hangs up, and once for all else") {
    const auto calls = [](Code code, int sys_errno, Deadline deadline) {
        Redial redial;
        int made = 1;
        while (redial.again({code, nobody, sys_errno, ""}, deadline)) ++made;
        return made;
    };
    CHECK(calls(Code::auth, ECONNRESET, soon()) == 10);  // in mid-handshake
    CHECK(calls(Code::peer_lost, 0, soon()) == 10);      // at the hello
    CHECK(calls(Code::auth, 0, soon()) == 1);            // another secret
    CHECK(calls(Code::system, ECONNREFUSED, soon()) == 1);
    CHECK(calls(Code::timeout, 0, soon()) == 1);
    const Deadline over = Deadline::after_ms(1);
    while (!over.passed()) std::this_thread::yield();
    CHECK(calls(Code::auth, ECONNRESET, over) == 1);
}

TEST_CASE("acceptor: random bytes are dropped and do not disturb the next client") {
    const unsigned seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    Host host({.handshake_timeout_ms = 60'000, .max_strangers = 16});
    for (int i = 0; i < 200; ++i) {
        const UniqueFd fd = host.connect();
        // A third starts well, a third is authenticated before it goes wrong.
        if (i % 3 == 1) REQUIRE(send_all(fd.get(), first_message(), soon()));
        if (i % 3 == 2 && !authenticate_client(fd.get(), key, soon())) continue;
        Bytes noise = random_text(random, random() % 5000);
        if (noise.size() >= 4) noise[3] |= std::byte{0x80};  // never a hello of a length allowed
        (void)send_all(fd.get(), noise, soon());             // it may have closed already
    }
    REQUIRE(host.introduce_as("after the noise"));
    REQUIRE(host.wait_for(1));
    CHECK(host.hellos() == "after the noise;");
}
