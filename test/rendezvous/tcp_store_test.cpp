#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <random>
#include <thread>

#include "net/acceptor.h"
#include "net/socket.h"
#include "rendezvous/store_protocol.h"
#include "store_fixture.h"

using namespace tutti;
using store_protocol::Status;
using store_protocol::StoreOp;

namespace {

net::HostPort address_of(const TcpStoreServer& server) {
    return {.host = "127.0.0.1", .port = server.port()};
}

UniqueFd connect_raw(const TcpStoreServer& server) {
    auto fd = net::connect_tcp(address_of(server), {.deadline = soon()});
    REQUIRE(fd);
    return std::move(*fd);
}

// Past the handshake: a client that may then send what it likes.
UniqueFd connect_introduced(const TcpStoreServer& server,
                            uint32_t version = store_protocol::version) {
    UniqueFd fd = connect_raw(server);
    ByteWriter hello;
    hello.put(version);
    REQUIRE(net::introduce(fd.get(), {"s3cret", "store/job"}, hello.take(), soon()));
    return fd;
}

struct RawReply {
    Status status{};
    std::string value;
};
RawReply read_reply(int fd) {
    const auto body = net::recv_frame(fd, store_protocol::max_frame_bytes, soon());
    REQUIRE(body);
    ByteReader reader(*body);
    RawReply reply{reader.get<Status>(), reader.get_text(store_protocol::max_frame_bytes)};
    REQUIRE(reader.at_end());
    return reply;
}
RawReply ask(int fd, StoreOp op, std::string_view key, std::string_view value) {
    REQUIRE(net::send_frame(fd, store_protocol::encode_request(op, key, value), soon()));
    return read_reply(fd);
}

void expect_serving(const TcpStoreServer& server) {
    auto store = open_store(client_options(server, "job", "s3cret"));
    REQUIRE(store);
    REQUIRE((*store)->set("alive", "yes", soon()));
    CHECK((*store)->get("alive", soon()).value() == "yes");
}

int64_t cpu_ns() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

/// The error of a store that cannot be opened, in which the words are. On a busy machine the
/// deadline may pass before the first attempt, whose error has others.
Error not_opened(StoreOptions options, std::string_view words) {
    Error error;
    for (int64_t ms = 120; ms < 20'000 && !contains(error.message, words); ms *= 10) {
        options.deadline = Deadline::after_ms(ms);
        const auto store = open_store(options);
        REQUIRE(!store);
        error = store.error();
    }
    return error;
}

uint16_t free_port() {
    const auto listener = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    REQUIRE(listener);
    return net::local_port(listener->get()).value();
}

}  // namespace

TEST_CASE("tcp store: rank 0 hosts it, the others find it, also if they come first") {
    for (const std::string host : {"127.0.0.1", "localhost", "[::1]"}) {
        if (host == "[::1]" && !net::listen_tcp({.host = "::1", .port = 0})) continue;
        INFO(host);
        StoreOptions options{.url = "tcp://" + host + ":" + std::to_string(free_port()),
                             .job = "job",
                             .deadline = soon()};
        Result<std::unique_ptr<Store>> other = fail(Code::system, "not opened");
        std::thread early([&, mine = options]() mutable {
            mine.rank = 1;
            other = open_store(mine);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        const auto hosting = open_store(options);
        early.join();
        REQUIRE(hosting);
        REQUIRE(other);
        CHECK((*hosting)->describe() == options.url);
        REQUIRE((*other)->set("key", "value", soon()));
        CHECK((*hosting)->get("key", soon()).value() == "value");
    }
}

TEST_CASE("tcp store: a port in use is an error of rank 0 that says so") {
    const auto taken = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    const std::string port = std::to_string(net::local_port(taken->get()).value());
    const auto store =
        open_store({.url = "tcp://127.0.0.1:" + port, .job = "job", .deadline = soon()});
    REQUIRE(!store);
    CHECK(store.error().code == Code::system);
    CHECK(store.error().sys_errno == EADDRINUSE);
    CHECK(contains(store.error().message, "rank 0"));
    CHECK(contains(store.error().message, "port " + port + " on 127.0.0.1 is in use"));
}

TEST_CASE("tcp store: one that is not there is an error with address, time and cause") {
    const std::string url = "tcp://127.0.0.1:" + std::to_string(free_port());
    const Error error = not_opened({.url = url, .job = "job", .rank = 1}, "refused");
    CHECK(error.code == Code::timeout);
    CHECK(error.rank == 0);
    CHECK(contains(error.message, "store " + url + " was not reachable for "));
    CHECK(contains(error.message, " ms: "));
    CHECK(contains(error.message, "refused"));
    CHECK(contains(error.advice, "start rank 0"));
}

TEST_CASE("tcp store: one that accepts and then is silent is not reachable, either") {
    const auto silent = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    const std::string url =
        "tcp://127.0.0.1:" + std::to_string(net::local_port(silent->get()).value());
    const Error error = not_opened({.url = url, .job = "job", .rank = 1}, "was not reachable for ");
    CHECK(error.code == Code::timeout);
    CHECK(contains(error.message, "was not reachable for "));
}

TEST_CASE("tcp store: a wrong secret or job is reported at once") {
    const auto server = start_server("job", "s3cret");
    for (const auto& [job, secret] :
         {std::pair{"job", "wrong"}, {"job", ""}, {"other", "s3cret"}}) {
        StoreOptions options = client_options(*server, job, secret);
        options.deadline = Deadline::after_ms(600'000);  // not waited for
        const auto store = open_store(options);
        REQUIRE(!store);
        CHECK(store.error().code == Code::auth);
        CHECK(contains(store.error().advice, "TUTTI_SECRET"));
        CHECK(contains(store.error().message, options.url));
    }
    expect_serving(*server);
}

TEST_CASE("tcp store: whoever answers without the secret is asked once only") {
    const auto listener = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    std::atomic<bool> stop{false};
    std::atomic<int> asked{0};
    std::thread impostor([&] {
        while (!stop) {
            pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
            if (::poll(&waiting, 1, 10) <= 0) continue;
            const UniqueFd fd(accept(listener->get(), nullptr, nullptr));
            ++asked;
            (void)net::send_all(fd.get(), *net::random_bytes(64), soon());
            std::byte rest[41];  // keeps the connection until the client has had enough
            (void)net::recv_all(fd.get(), rest, soon());
        }
    });
    const auto store = open_store(
        {.url = "tcp://127.0.0.1:" + std::to_string(net::local_port(listener->get()).value()),
         .job = "job",
         .rank = 1,
         .deadline = soon()});
    stop = true;
    impostor.join();
    REQUIRE(!store);
    CHECK(store.error().code == Code::auth);
    CHECK(asked == 1);
}

TEST_CASE("tcp store: a port that always closes is given up after some attempts") {
    const auto listener = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    std::atomic<bool> stop{false};
    std::thread closing([&] {
        while (!stop) {
            pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
            if (::poll(&waiting, 1, 10) > 0) UniqueFd(accept(listener->get(), nullptr, nullptr));
        }
    });
    const auto store = open_store(
        {.url = "tcp://127.0.0.1:" + std::to_string(net::local_port(listener->get()).value()),
         .job = "job",
         .rank = 1,
         .deadline = Deadline::after_ms(600'000)});
    stop = true;
    closing.join();
    REQUIRE(!store);
    CHECK(store.error().code == Code::auth);
    CHECK(contains(store.error().message, "closed the connection during authentication"));
}

TEST_CASE("tcp store: beyond loopback it wants a secret, or to be told that none is wanted") {
    const std::string port = std::to_string(free_port());
    for (const Rank rank : {0, 1}) {
        const auto refused = open_store({.url = "tcp://0.0.0.0:" + port,
                                         .job = "job",
                                         .rank = rank,
                                         .deadline = soon()});  // refused at once
        REQUIRE(!refused);
        CHECK(refused.error().code == Code::invalid);
        CHECK(contains(refused.error().message, "0.0.0.0:" + port));
        CHECK(contains(refused.error().advice, "TUTTI_SECRET"));
        CHECK(contains(refused.error().advice, "TUTTI_INSECURE=1"));
    }
    CHECK(TcpStoreServer::start({.host = "::", .job = "job"}).error().code == Code::invalid);
    const StoreOptions open_to_all{
        .url = "tcp://0.0.0.0:" + port, .job = "job", .insecure = true, .deadline = soon()};
    CHECK(open_store(open_to_all));
    StoreOptions with_secret = open_to_all;
    with_secret.insecure = false;
    with_secret.secret = "s3cret";
    CHECK(open_store(with_secret));
}

TEST_CASE("tcp store: a server that hangs up and is not there any more is gone") {
    auto listener = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    REQUIRE(listener);
    const StoreOptions options{
        .url = "tcp://127.0.0.1:" + std::to_string(net::local_port(listener->get()).value()),
        .job = "job",
        .rank = 1,
        .deadline = Deadline::after_ms(600'000)};
    std::thread dying([&] {
        pollfd waiting{.fd = listener->get(), .events = POLLIN, .revents = 0};
        ::poll(&waiting, 1, 20'000);
        const UniqueFd caller(accept(listener->get(), nullptr, nullptr));
        listener->reset();
    });
    const auto store = open_store(options);
    dying.join();
    REQUIRE(!store);
    CHECK(store.error().code == Code::peer_lost);
    CHECK(store.error().rank == 0);
    CHECK(contains(store.error().message, "the process of rank 0, which served it, has ended"));
}

TEST_CASE("tcp store: a client's will is executed once its connection has ended") {
    const auto server = start_server("job", "s3cret");
    const auto store = open_store(client_options(*server, "job", "s3cret"));
    REQUIRE(store);
    UniqueFd dies = connect_introduced(*server);
    CHECK(ask(dies.get(), StoreOp::will, "word", "earlier").status == Status::ok);
    CHECK(ask(dies.get(), StoreOp::will, "word", "last").status == Status::ok);
    CHECK((*store)->try_get("word", soon()).value() == std::nullopt);
    dies.reset();
    const std::string word = (*store)->get("word", soon()).value();
    REQUIRE(word.size() == sizeof(int64_t) + 4);
    CHECK(word.substr(sizeof(int64_t)) == "last");
    CHECK(std::abs(ByteReader(as_bytes(word)).get<int64_t>() - wall_clock_s()) < 1000);

    UniqueFd later = connect_introduced(*server);  // the value that is there stays
    CHECK(ask(later.get(), StoreOp::will, "word", "not me").status == Status::ok);
    CHECK(ask(later.get(), StoreOp::get, "word", "").value == word);
    later.reset();
    {
        const auto will = (*store)->set_will("withdrawn", "x", soon());
        REQUIRE(will);
        REQUIRE(*will);
    }
    expect_serving(*server);
    CHECK((*store)->try_get("word", soon()).value() == word);
    CHECK((*store)->try_get("withdrawn", soon()).value() == std::nullopt);
}

TEST_CASE("tcp store: a name that is not known is said to be that, also at the deadline") {
    for (const std::string secret : {"", "s3cret"}) {
        const std::string words = "cannot look up the host name \"xxx";
        const Error error = not_opened({.url = "tcp://" + std::string(70, 'x') + ":1",
                                        .job = "job",
                                        .secret = secret,
                                        .rank = 1},
                                       words);
        CHECK(contains(error.message, words));
        CHECK_FALSE(contains(error.message, "timed out looking up"));
    }
}

TEST_CASE("tcp store: a server that goes away ends a waiting get at once, and later calls") {
    auto server = start_server("job", "s3cret");
    StoreOptions options = client_options(*server, "job", "s3cret");
    options.hosted = false;
    const auto store = open_store(options);
    REQUIRE(store);
    std::thread ending([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        server.reset();
    });
    const auto value = (*store)->get("never", Deadline::after_ms(600'000));
    ending.join();
    REQUIRE(!value);
    CHECK(value.error().code == Code::peer_lost);
    CHECK(value.error().rank == 0);
    CHECK(contains(value.error().message, "never"));
    CHECK(!(*store)->set("key", "value", soon()));  // at once: it is known to be gone
    CHECK(!(*store)->remove("key", soon()));
}

TEST_CASE(
    "tcp store: keys and values over the limits are refused here, not by a closed connection") {
    const auto server = start_server("job", "s3cret");
    const auto store = open_store(client_options(*server, "job", "s3cret"));
    REQUIRE(store);
    const std::string longest(store_protocol::max_key_bytes, 'k');
    const std::string largest(store_protocol::max_value_bytes, 'v');
    REQUIRE((*store)->set(longest, largest, soon()));
    CHECK((*store)->get(longest, soon()).value() == largest);
    CHECK((*store)->set(longest + "k", "", soon()).error().code == Code::invalid);
    const auto refused = (*store)->set("key", largest + "v", soon());
    REQUIRE(!refused);
    CHECK(refused.error().code == Code::invalid);
    CHECK(contains(refused.error().message, "key"));
}

TEST_CASE("tcp store: counters add up and refuse what is no counter") {
    const auto server = start_server("job", "s3cret");
    const UniqueFd fd = connect_introduced(*server);
    const auto amount = [](int64_t n) {
        return std::string(reinterpret_cast<const char*>(&n), sizeof n);
    };
    CHECK(ask(fd.get(), StoreOp::add, "n", amount(5)).value == amount(5));
    CHECK(ask(fd.get(), StoreOp::add, "n", amount(-7)).value == amount(-2));
    CHECK(ask(fd.get(), StoreOp::get, "n", "").value == amount(-2));
    CHECK(ask(fd.get(), StoreOp::add, "n", amount(INT64_MIN)).value == amount(INT64_MAX - 1));
    CHECK(ask(fd.get(), StoreOp::add, "n", "short").status == Status::refused);
    CHECK(ask(fd.get(), StoreOp::set, "text", "some text").status == Status::ok);
    CHECK(ask(fd.get(), StoreOp::add, "text", amount(1)).status == Status::refused);
}

TEST_CASE("tcp store: requests sent ahead are answered in order, also behind a waiting get") {
    const auto server = start_server("job", "s3cret");
    const UniqueFd fd = connect_introduced(*server), other = connect_introduced(*server);
    Bytes ahead;
    const auto append = [&](StoreOp op, std::string_view key, std::string_view value) {
        ByteWriter frame;
        frame.put_text(as_text(store_protocol::encode_request(op, key, value)));
        const Bytes bytes = frame.take();
        ahead.insert(ahead.end(), bytes.begin(), bytes.end());
    };
    append(StoreOp::set, "first", "1");
    append(StoreOp::get, "later", "");
    append(StoreOp::get, "first", "");
    REQUIRE(net::send_all(fd.get(), ahead, soon()));
    CHECK(read_reply(fd.get()).status == Status::ok);
    std::byte early[1];
    CHECK(net::recv_all(fd.get(), early, Deadline::after_ms(30)).error().code == Code::timeout);
    CHECK(ask(other.get(), StoreOp::set, "later", "2").status == Status::ok);
    CHECK(read_reply(fd.get()).value == "2");
    CHECK(read_reply(fd.get()).value == "1");
}

TEST_CASE("tcp store: what is sent behind a waiting get is left in the socket, at no cost") {
    const auto server = start_server("job", "s3cret");
    const UniqueFd fd = connect_introduced(*server);
    REQUIRE(net::send_frame(fd.get(), store_protocol::encode_request(StoreOp::get, "later", ""),
                            soon()));
    const Bytes flood(64 << 20);
    CHECK(net::send_all(fd.get(), flood, Deadline::after_ms(500)).error().code == Code::timeout);
    const int64_t cpu_start_ns = cpu_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(cpu_ns() - cpu_start_ns < 100'000'000);
    expect_serving(*server);
}

TEST_CASE("tcp store: malformed requests close that connection only") {
    const auto server = start_server("job", "s3cret");
    const auto expect_closed = [&](ByteView bytes) {
        const UniqueFd fd = connect_introduced(*server);
        REQUIRE(net::send_all(fd.get(), bytes, soon()));
        std::byte reply[1];
        CHECK(net::recv_all(fd.get(), reply, soon()).error().code == Code::peer_lost);
    };
    expect_closed(ByteWriter().put(uint32_t{store_protocol::max_frame_bytes + 1}).take());
    expect_closed(ByteWriter().put(uint32_t{0xffffffff}).take());
    expect_closed(ByteWriter().put(uint32_t{0}).take());
    expect_closed(ByteWriter().put_text("\x01").take());
    expect_closed(ByteWriter().put_text(std::string("\x63\0\0\0\0\0\0\0\0", 9)).take());
    expect_closed(ByteWriter().put_text(std::string("\x01\xff\xff\xff\xff\0\0\0\0", 9)).take());
    expect_closed(ByteWriter().put_text(std::string("\x01\0\0\0\0\0\0\0\0trailing", 17)).take());
    const UniqueFd future = connect_introduced(*server, 99);
    std::byte reply[1];
    CHECK(net::recv_all(future.get(), reply, soon()).error().code == Code::peer_lost);
    expect_serving(*server);
}

TEST_CASE("tcp store: random requests do not stop the server") {
    const unsigned seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto server = start_server("job", "s3cret");
    std::vector<UniqueFd> open;
    for (int i = 0; i < 200; ++i) {
        UniqueFd fd = i % 2 == 0 ? connect_raw(*server) : connect_introduced(*server);
        Bytes bytes(random() % 3000);
        for (std::byte& b : bytes) b = static_cast<std::byte>(random());
        // Half of the lengths are right, so that the fields behind them are looked at, too.
        if (i % 4 == 1) bytes = ByteWriter().put_text(as_text(bytes)).take();
        if (i % 4 == 1 && bytes.size() > 4) bytes[4] = static_cast<std::byte>(1 + random() % 5);
        (void)net::send_all(fd.get(), bytes, soon());
        if (random() % 2 == 0) open.push_back(std::move(fd));
    }
    expect_serving(*server);
}

TEST_CASE("tcp store: no request waits longer for a server that is silent than it was told to") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const UniqueFd read_end(ends[0]), write_end(ends[1]);
    const pid_t host = ::fork();
    if (host == 0) {
        auto server =
            TcpStoreServer::start({.host = "127.0.0.1", .job = "job", .secret = "s3cret"});
        const uint16_t port = server ? (*server)->port() : 0;
        if (::write(write_end.get(), &port, sizeof port) == sizeof port) ::pause();
        ::_exit(1);
    }
    uint16_t port = 0;
    REQUIRE(::read(read_end.get(), &port, sizeof port) == sizeof port);
    const auto store = open_store({.url = "tcp://127.0.0.1:" + std::to_string(port),
                                   .job = "job",
                                   .secret = "s3cret",
                                   .rank = 1,
                                   .deadline = soon()});
    REQUIRE(store);
    // A stop takes effect when each thread has seen it: until then the server may still answer.
    REQUIRE(::kill(host, SIGSTOP) == 0);
    int status = 0;
    REQUIRE(::waitpid(host, &status, WUNTRACED) == host);
    REQUIRE(WIFSTOPPED(status));
    const int64_t start_ns = now_ns();
    const auto now = [] { return Deadline::after_ms(50); };
    std::string existing;
    for (const Error& error :
         {(*store)->set("key", "value", now()).error(), (*store)->try_get("key", now()).error(),
          (*store)->claim("key", "value", existing, now()).error(),
          (*store)->remove("key", now()).error()}) {
        INFO(error.message);
        CHECK(error.code == Code::timeout);
    }
    CHECK(now_ns() - start_ns < 20'000'000'000);
    ::kill(host, SIGKILL);
    ::waitpid(host, nullptr, 0);
}

TEST_CASE("tcp store: clients that leave while they wait are forgotten") {
    const auto server = start_server("job", "s3cret");
    for (int i = 0; i < 50; ++i) {
        const UniqueFd fd = connect_introduced(*server);
        REQUIRE(net::send_frame(fd.get(), store_protocol::encode_request(StoreOp::get, "key", ""),
                                soon()));
    }
    const auto store = open_store(client_options(*server, "job", "s3cret"));
    REQUIRE((*store)->set("key", "value", soon()));
    CHECK((*store)->get("key", soon()).value() == "value");
}

TEST_CASE("tcp store: a client that never reads does not delay the others") {
    const auto server = start_server("job", "s3cret");
    const UniqueFd deaf = connect_introduced(*server);
    const std::string large(500'000, 'x');
    REQUIRE(ask(deaf.get(), StoreOp::set, "large", large).status == Status::ok);
    Bytes gets;
    for (int i = 0; i < 1000; ++i) {
        ByteWriter frame;
        frame.put_text(as_text(store_protocol::encode_request(StoreOp::get, "large", "")));
        const Bytes bytes = frame.take();
        gets.insert(gets.end(), bytes.begin(), bytes.end());
    }
    REQUIRE(net::send_all(deaf.get(), gets, soon()));  // 500 MB of answers that nobody takes
    expect_serving(*server);
    for (int i = 0; i < 1000; ++i) {
        if (read_reply(deaf.get()).value.size() != large.size()) FAIL("reply " << i);
    }
}

TEST_CASE("tcp store: 200 silent connections do not delay a real client") {
    const auto server = start_server("job", "s3cret");
    const auto time_client = [&] {
        const int64_t start_ns = now_ns();
        expect_serving(*server);
        return now_ns() - start_ns;
    };
    int64_t alone_ns = INT64_MAX, crowded_ns = INT64_MAX;
    for (int i = 0; i < 5; ++i) alone_ns = std::min(alone_ns, time_client());
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 200; ++i) silent.push_back(connect_raw(*server));
    for (int i = 0; i < 100; ++i) silent.push_back(connect_introduced(*server));
    for (int i = 0; i < 5; ++i) crowded_ns = std::min(crowded_ns, time_client());
    // A server that waited for any of them would take its time-out, seconds.
    CHECK(crowded_ns < alone_ns + 500'000'000);
}

TEST_CASE(
    "tcp store: a name is looked up no longer than until the deadline, by who serves and who "
    "calls") {
    const Deadline over = Deadline::after_ms(1);
    while (!over.passed()) std::this_thread::yield();
    for (const std::string secret : {"", "s3cret"})
        for (const Rank rank : {0, 1}) {
            INFO("secret '" << secret << "', rank " << rank);
            const auto store = open_store({.url = "tcp://localhost:1",
                                           .job = "job",
                                           .secret = secret,
                                           .rank = rank,
                                           .deadline = over});
            REQUIRE(!store);
            CHECK(store.error().code == Code::timeout);
            CHECK(contains(store.error().message, "looking up"));
            if (rank == 0) CHECK(contains(store.error().message, "cannot host"));
        }
}

TEST_CASE("tcp store: a second job at a port of this process says whose it is, and what to do") {
    const auto start = [](uint16_t port) {
        return TcpStoreServer::start({.host = "127.0.0.1", .port = port, .job = "second"});
    };
    auto first = start_server("first");
    const uint16_t port = first->port();
    const auto second = start(port);
    REQUIRE(!second);
    CHECK(contains(second.error().message, "is in use"));
    CHECK(contains(second.error().message, "this process serves job 'first' there"));
    CHECK(contains(second.error().advice, "another port, or file:///dir"));
    first.reset();
    const auto others = net::listen_tcp({.host = "127.0.0.1", .port = port});
    REQUIRE(others);
    const auto third = start(port);
    REQUIRE(!third);
    CHECK_FALSE(contains(third.error().message, "this process"));
    CHECK_FALSE(contains(third.error().advice, "file:///dir"));
}
