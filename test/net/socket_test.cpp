#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <thread>

#include "net_fixture.h"

using namespace tutti;
using namespace tutti::net;

TEST_CASE("host and port: parsed and written back for names, IPv4 and IPv6") {
    const auto named = parse_host_port("node-1.example:29500");
    REQUIRE(named);
    CHECK(named->host == "node-1.example");
    CHECK(named->port == 29500);
    const auto v6 = parse_host_port("[::1]:80");
    REQUIRE(v6);
    CHECK(v6->host == "::1");
    CHECK(v6->port == 80);
    CHECK(format_host_port(*v6) == "[::1]:80");
    CHECK(format_host_port(*named) == "node-1.example:29500");
    CHECK(parse_host_port("h:0")->port == 0);
    CHECK(parse_host_port("h:65535")->port == 65535);
}

TEST_CASE("host and port: nonsense is refused with what was expected") {
    for (const char* text :
         {"", "host", "host:", ":80", "host:port", "host:65536", "host:-1", "host:80x", "[::1]",
          "[::1]80", "[::1:80", "[]:80", "::1:80", "a:b:1"}) {
        INFO(text);
        const auto parsed = parse_host_port(text);
        REQUIRE(!parsed);
        CHECK(parsed.error().code == Code::invalid);
        CHECK(contains(parsed.error().advice, "host:port"));
    }
}

TEST_CASE("choose address: loopback, an interface by name, an own address, and a helpful refusal") {
    CHECK(choose_address({"", true, "192.0.2.1"}).value() == "127.0.0.1");
    CHECK(choose_address({"lo", false, "192.0.2.1"}).value() == "127.0.0.1");
    CHECK(choose_address({"127.0.0.5"}).value() == "127.0.0.5");
    CHECK(choose_address({"", false, "192.0.2.1"}).value() == "192.0.2.1");
    CHECK(!choose_address({}).value().empty());
    for (const char* wrong : {"no-such-if0", "192.0.2.1", "0.0.0.0"}) {
        const auto chosen = choose_address({wrong});
        REQUIRE(!chosen);
        CHECK(chosen.error().code == Code::invalid);
        CHECK(contains(chosen.error().message, wrong));
        CHECK(contains(chosen.error().advice, "lo (127.0.0.1"));
    }
}

TEST_CASE("address towards another machine: none on loopback") {
    CHECK(address_towards({"127.0.0.1", 80}, soon()).empty());
    CHECK(address_towards({"::1", 80}, soon()).empty());
    CHECK(address_towards({"no such name", 80}, soon()).empty());
}

TEST_CASE("loopback: known for numbers and names") {
    CHECK(is_loopback("127.0.0.1", soon()).value());
    CHECK(is_loopback("127.9.9.9", soon()).value());
    CHECK(is_loopback("::1", soon()).value());
    CHECK(is_loopback("localhost", soon()).value());
    CHECK(!is_loopback("0.0.0.0", soon()).value());
    CHECK(!is_loopback("::", soon()).value());
    CHECK(!is_loopback("192.0.2.1", soon()).value());
}

TEST_CASE("tcp: frames travel both ways over IPv4 and IPv6") {
    for (const std::string host : {"127.0.0.1", "::1", "localhost"}) {
        if (host == "::1" && !ipv6_works()) continue;
        INFO(host);
        const auto listener = listen_tcp({.host = host, .port = 0});
        REQUIRE(listener);
        const auto port = local_port(listener->get());
        REQUIRE(port);
        const auto client = connect_tcp({.host = host, .port = *port}, {.deadline = soon()});
        REQUIRE(client);
        const UniqueFd server(accept4(listener->get(), nullptr, nullptr, SOCK_NONBLOCK));
        REQUIRE(server);
        REQUIRE(send_frame(client->get(), as_bytes("there"), soon()));
        CHECK(as_text(recv_frame(server.get(), 5, soon()).value()) == "there");
        REQUIRE(send_frame(server.get(), as_bytes(""), soon()));
        CHECK(recv_frame(client->get(), 5, soon()).value().empty());
    }
}

TEST_CASE("tcp: sockets are non-blocking, close-on-exec and without delay") {
    const auto listener = listen_tcp({.host = "127.0.0.1", .port = 0});
    REQUIRE(listener);
    const auto client = connect_tcp(
        {.host = "127.0.0.1", .port = local_port(listener->get()).value()}, {.deadline = soon()});
    REQUIRE(client);
    for (const int fd : {listener->get(), client->get()}) {
        CHECK((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
        CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    }
    int nodelay = 0;
    socklen_t bytes = sizeof nodelay;
    REQUIRE(getsockopt(client->get(), IPPROTO_TCP, TCP_NODELAY, &nodelay, &bytes) == 0);
    CHECK(nodelay != 0);
}

int sent_ahead(int fd) {
    int buffer = 0;
    socklen_t bytes = sizeof buffer;
    REQUIRE(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, &bytes) == 0);
    return buffer;
}

TEST_CASE("tcp: within a machine little is under way at a time") {
    const auto listener = listen_tcp({.host = "127.0.0.1", .port = 0});
    REQUIRE(listener);
    const auto client = connect_tcp(
        {.host = "127.0.0.1", .port = local_port(listener->get()).value()}, {.deadline = soon()});
    REQUIRE(client);
    bound_if_local(client->get());
    CHECK(sent_ahead(client->get()) == 256 * 1024);

    // Others keep what the system thinks best.
    const auto pair = socket_pair();
    const int before = sent_ahead(pair.first.get());
    bound_if_local(pair.first.get());
    CHECK(sent_ahead(pair.first.get()) == before);
    const int unconnected = sent_ahead(listener->get());
    bound_if_local(listener->get());
    CHECK(sent_ahead(listener->get()) == unconnected);
}

TEST_CASE(
    "tcp: connections that a library hides are found by the listening sockets that they end at") {
    struct Side {
        UniqueFd listener = listen_tcp({.host = "127.0.0.1", .port = 0}).value();
        uint16_t port = local_port(listener.get()).value();
        Bytes address;
        Side() {
            sockaddr_in in{};
            socklen_t bytes = sizeof in;
            REQUIRE(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&in), &bytes) == 0);
            const auto* first = reinterpret_cast<const std::byte*>(&in);
            address.assign(first, first + bytes);
        }
        UniqueFd connect() const {
            return connect_tcp({.host = "127.0.0.1", .port = port}, {.deadline = soon()}).value();
        }
        UniqueFd accept() const {
            UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK));
            REQUIRE(fd);
            return fd;
        }
    };
    const Side own, peer, other;
    const UniqueFd to_own = own.connect(), to_peer = peer.connect(), to_other = other.connect();
    const UniqueFd from_own = own.accept(), from_peer = peer.accept(), from_other = other.accept();
    const int before = sent_ahead(to_other.get());
    // To another machine as much as the system likes is on its way; nonsense is nobody's address.
    sockaddr_in far{};
    far.sin_family = AF_INET;
    far.sin_port = htons(peer.port);
    REQUIRE(inet_pton(AF_INET, "192.0.2.1", &far.sin_addr) == 1);
    const auto* const first = reinterpret_cast<const std::byte*>(&far);
    for (const Bytes& elsewhere : {Bytes(first, first + sizeof far), Bytes(own.address.size())}) {
        bound_hidden_if_local(own.address, elsewhere);
        CHECK(sent_ahead(from_own.get()) != 256 * 1024);
    }
    bound_hidden_if_local(own.address, peer.address);
    CHECK(sent_ahead(from_own.get()) == 256 * 1024);
    CHECK(sent_ahead(to_peer.get()) == 256 * 1024);
    // The peer's ends of them, if it is another process, are the peer's own affair.
    CHECK(sent_ahead(from_peer.get()) != 256 * 1024);
    CHECK(sent_ahead(to_other.get()) == before);
    CHECK(sent_ahead(from_other.get()) == before);
}

TEST_CASE("tcp: a port in use is an error that names it") {
    const auto first = listen_tcp({.host = "127.0.0.1", .port = 0});
    REQUIRE(first);
    const uint16_t port = local_port(first->get()).value();
    const auto second = listen_tcp({.host = "127.0.0.1", .port = port});
    REQUIRE(!second);
    CHECK(second.error().code == Code::system);
    CHECK(second.error().sys_errno == EADDRINUSE);
    CHECK(contains(second.error().message,
                   "port " + std::to_string(port) + " on 127.0.0.1 is in use: "));
    CHECK(contains(second.error().advice, "choose another"));
}

TEST_CASE("tcp: listening on another machine's address says so") {
    const auto listener = listen_tcp({.host = "192.0.2.1", .port = 0});
    REQUIRE(!listener);
    CHECK(contains(listener.error().message, "192.0.2.1:0"));
    CHECK(listener.error().sys_errno == EADDRNOTAVAIL);
}

TEST_CASE(
    "tcp: connecting where nobody listens fails at once, or at the deadline if it keeps trying") {
    uint16_t port = 0;
    {
        const auto listener = listen_tcp({.host = "127.0.0.1", .port = 0});
        port = local_port(listener->get()).value();
    }
    const HostPort nobody_there{.host = "127.0.0.1", .port = port};
    const auto once = connect_tcp(nobody_there, {.deadline = soon()});
    REQUIRE(!once);
    CHECK(once.error().code == Code::system);
    CHECK(once.error().sys_errno == ECONNREFUSED);
    CHECK(contains(once.error().message, format_host_port(nobody_there)));
    CHECK(contains(once.error().message, "refused"));
    CHECK(contains(once.error().advice, "listens at this address"));

    // On a busy machine the deadline may pass before the first call.
    Result<UniqueFd> kept = fail(Code::system, "not tried");
    for (int64_t ms = 150; ms < 20'000 && !contains(kept.error().message, "refused"); ms *= 10) {
        const int64_t start_ns = now_ns();
        kept = connect_tcp(nobody_there, {.deadline = Deadline::after_ms(ms), .keep_trying = true});
        REQUIRE(!kept);
        CHECK(now_ns() - start_ns >= ms * 1'000'000);
    }
    CHECK(kept.error().code == Code::timeout);
    CHECK(contains(kept.error().message, format_host_port(nobody_there)));
    CHECK(contains(kept.error().message, " ms"));
    CHECK(contains(kept.error().message, "refused"));
}

TEST_CASE("tcp: keeps trying until somebody listens") {
    uint16_t port = 0;
    {
        const auto listener = listen_tcp({.host = "127.0.0.1", .port = 0});
        port = local_port(listener->get()).value();
    }
    Result<UniqueFd> late = fail(Code::system, "not yet");
    std::thread listener_thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        late = listen_tcp({.host = "127.0.0.1", .port = port});
    });
    const auto client =
        connect_tcp({.host = "127.0.0.1", .port = port}, {.deadline = soon(), .keep_trying = true});
    listener_thread.join();
    REQUIRE(late);
    CHECK(client);
}

TEST_CASE("tcp: a name that does not exist is named") {
    const auto client =
        connect_tcp({.host = "no-such-host.invalid", .port = 1}, {.deadline = soon()});
    REQUIRE(!client);
    CHECK(contains(client.error().message, "no-such-host.invalid"));
}

TEST_CASE("unix: connects by abstract name, and says whom it could not reach") {
    const std::string name = "tutti-test-" + std::to_string(getpid());
    const auto refused = connect_unix(name, {.deadline = soon()});
    REQUIRE(!refused);
    CHECK(contains(refused.error().message, name));
    const auto listener = listen_unix(name);
    REQUIRE(listener);
    CHECK(connect_unix(name, {.deadline = soon()}));
    CHECK(!listen_unix(name));
    const auto long_name = listen_unix(std::string(200, 'x'));
    REQUIRE(!long_name);
    CHECK(long_name.error().code == Code::invalid);
}

TEST_CASE("transfer: waits for a slow reader and delivers every byte") {
    auto [a, b] = socket_pair();
    std::mt19937 random(1);
    const Bytes data = random_text(random, 3'000'000);
    Result<> sent;
    std::thread sender([&, fd = a.get()] { sent = send_frame(fd, data, soon()); });
    const auto received = recv_frame(b.get(), data.size(), soon());
    sender.join();
    REQUIRE(sent);
    REQUIRE(received);
    CHECK(*received == data);
}

TEST_CASE("transfer: the deadline ends it and says how far it got") {
    auto [a, b] = socket_pair();
    REQUIRE(send_all(a.get(), as_bytes("abc"), soon()));
    std::byte in[10];
    const auto received = recv_all(b.get(), in, Deadline::after_ms(50));
    REQUIRE(!received);
    CHECK(received.error().code == Code::timeout);
    CHECK(contains(received.error().message, "3 of 10 bytes"));
    const Bytes much(10'000'000);
    const auto sent = send_all(a.get(), much, Deadline::after_ms(50));
    REQUIRE(!sent);
    CHECK(sent.error().code == Code::timeout);
}

TEST_CASE("transfer: a closed connection is told apart, without a signal") {
    auto [a, b] = socket_pair();
    b.reset();
    std::byte in[1];
    CHECK(recv_all(a.get(), in, soon()).error().code == Code::peer_lost);
    CHECK(send_all(a.get(), as_bytes("x"), soon()).error().code == Code::peer_lost);
}

TEST_CASE("transfer: an announced length over the limit is refused before it is allocated") {
    auto [a, b] = socket_pair();
    ByteWriter writer;
    writer.put(uint32_t{0xffffffff});
    REQUIRE(send_all(a.get(), writer.take(), soon()));
    const auto received = recv_frame(b.get(), 4096, soon());
    REQUIRE(!received);
    CHECK(received.error().code == Code::invalid);
    CHECK(contains(received.error().message, "4294967295"));
}
