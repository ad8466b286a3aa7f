// Several jobs at one TCP store.
#include <netinet/tcp.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <thread>

#include "net/acceptor.h"
#include "net/socket.h"
#include "rendezvous/store_protocol.h"
#include "rendezvous/tcp_store.h"
#include "store_fixture.h"
#include "wait/reactor.h"

using namespace tutti;

namespace {

constexpr int64_t brief_ms = 200;

std::string url_of(uint16_t port) {
    return "tcp://127.0.0.1:" + std::to_string(port);
}

/// Rank 0 serves the store, or opens its job at the server that has the port.
Result<std::unique_ptr<Store>> open_as_first(uint16_t port, const std::string& job,
                                             const std::string& secret = "s3cret") {
    return open_store(
        {.url = url_of(port), .job = job, .secret = secret, .rank = 0, .deadline = soon()});
}

Result<std::unique_ptr<Store>> enter(uint16_t port, const std::string& job,
                                     Deadline deadline = soon(), Rank server = nobody) {
    return open_store({.url = url_of(port),
                       .job = job,
                       .secret = "s3cret",
                       .rank = 1,
                       .server = server,
                       .deadline = deadline});
}

/// For each end of the port's connections: the time until the kernel asks whether the other host is
/// there; -1 if it never does. From /proc/net/tcp.
std::vector<int64_t> keepalive_waits_ms(uint16_t port) {
    std::vector<int64_t> waits_ms;
    std::ifstream table("/proc/net/tcp");
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        unsigned own = 0, peer = 0, state = 0, timer = 0;
        unsigned long ticks = 0;
        const int read = std::sscanf(line.c_str(), "%*s %*8x:%x %*8x:%x %x %*x:%*x %x:%lx", &own,
                                     &peer, &state, &timer, &ticks);
        if (read != 5 || state != TCP_ESTABLISHED || (own != port && peer != port)) continue;
        constexpr unsigned keepalive_timer = 2;
        waits_ms.push_back(timer == keepalive_timer
                               ? static_cast<int64_t>(ticks) * 1000 / sysconf(_SC_CLK_TCK)
                               : -1);
    }
    return waits_ms;
}

std::string value_in(Store& store, const std::string& key) {
    auto value = store.get(key, soon());
    return value ? *std::move(value) : value.error().message;
}

}  // namespace

TEST_CASE("tcp store, jobs: each job at a server has keys of its own") {
    const auto server = start_server("first", "s3cret");
    const uint16_t port = server->port();
    const auto second = open_as_first(port, "second"), third = open_as_first(port, "third");
    const auto first = enter(port, "first");
    REQUIRE(first);
    REQUIRE(second);
    REQUIRE(third);
    for (const auto* store : {&first, &second, &third})
        REQUIRE((**store)->set("whose",
                               store == &first    ? "1"
                               : store == &second ? "2"
                                                  : "3",
                               soon()));
    for (const std::string job : {"first", "second", "third"}) {
        INFO(job);
        const auto member = enter(port, job);
        REQUIRE(member);
        CHECK(value_in(**member, "whose") == (job == "first" ? "1" : job == "second" ? "2" : "3"));
    }
}

TEST_CASE("tcp store, jobs: a rank that comes before its rank 0 waits for it") {
    const auto server = start_server("first", "s3cret");
    Result<std::unique_ptr<Store>> early = fail(Code::system, "not yet");
    std::thread rank([&] { early = enter(server->port(), "second"); });
    const auto waits = [&] { return server->turned_away() == 1; };
    for (const Deadline patience = soon(); !waits() && !patience.passed();)
        std::this_thread::yield();
    CHECK(waits());
    const auto late = open_as_first(server->port(), "second");
    rank.join();
    REQUIRE(late);
    REQUIRE(early);
    CHECK(server->turned_away() == 0);
    REQUIRE((*late)->set("key", "value", soon()));
    CHECK(value_in(**early, "key") == "value");
}

TEST_CASE("tcp store, jobs: a rank that waits for its rank 0 outlives the server of another job") {
    auto server = start_server("first", "s3cret");
    const uint16_t port = server->port();
    Result<std::unique_ptr<Store>> early = fail(Code::system, "not yet");
    std::thread rank([&] { early = enter(port, "second"); });
    for (const Deadline patience = soon(); server->turned_away() == 0 && !patience.passed();)
        std::this_thread::yield();
    server.reset();
    const auto late = open_as_first(port, "second");
    rank.join();
    REQUIRE(late);
    CHECK(early);
}

TEST_CASE("tcp store, jobs: a job that nobody opens") {
    const auto server = start_server("first", "s3cret");
    const auto lost = enter(server->port(), "frist", Deadline::after_ms(brief_ms));
    REQUIRE(!lost);
    CHECK(lost.error().code == Code::timeout);
    CHECK(
        contains(lost.error().message, "serves job 'first', and rank 0 did not open job 'frist'"));
    CHECK(contains(lost.error().advice, "compare TUTTI_JOB"));
    CHECK(server->turned_away() == 1);
}

TEST_CASE("tcp store, jobs: a job that is open is not opened again") {
    const auto server = start_server("first", "s3cret");
    const auto second = open_as_first(server->port(), "second");
    REQUIRE(second);
    for (const std::string job : {"first", "second"}) {
        INFO(job);
        const auto again = open_as_first(server->port(), job);
        REQUIRE(!again);
        CHECK(again.error().sys_errno == EADDRINUSE);
        CHECK(contains(again.error().message, "serves job '" + job + "' already"));
        CHECK(contains(again.error().advice, "another TUTTI_JOB"));
    }
}

TEST_CASE(
    "tcp store, jobs: a job ends with the process that opened it, and opens anew without keys") {
    const auto server = start_server("first", "s3cret");
    const uint16_t port = server->port();
    auto opener = open_as_first(port, "second");
    REQUIRE(opener);
    CHECK((*opener)->forgets());
    const auto member = enter(port, "second");
    REQUIRE(member);
    REQUIRE((*member)->set("old", "1", soon()));
    opener->reset();
    auto told = (*member)->get("never", soon());
    REQUIRE(!told);
    CHECK(told.error().code == Code::peer_lost);
    CHECK(contains(told.error().message, "of job 'first'"));
    // The server may notice the end of the connections one after the other.
    Result<std::unique_ptr<Store>> anew = open_as_first(port, "second");
    for (const Deadline patience = soon(); !anew && !patience.passed();)
        anew = open_as_first(port, "second");
    REQUIRE(anew);
    const auto old = (*anew)->try_get("old", soon());
    REQUIRE(old);
    CHECK(!*old);
}

TEST_CASE("tcp store, jobs: the kernel asks after the host of a connection that is silent") {
    const auto server = start_server("first", "s3cret");
    const auto second = open_as_first(server->port(), "second");
    REQUIRE(second);
    // Two connections of rank 0, with two ends each. While an end waits for an acknowledgement, the
    // kernel shows that timer.
    std::vector<int64_t> waits_ms;
    const auto are_soon = [&] {
        waits_ms = keepalive_waits_ms(server->port());
        return std::all_of(waits_ms.begin(), waits_ms.end(),
                           [](int64_t wait_ms) { return wait_ms >= 0 && wait_ms <= 31'000; });
    };
    for (const Deadline patience = Deadline::after_ms(2000); !are_soon() && !patience.passed();)
        std::this_thread::yield();
    CHECK(are_soon());
    CHECK(waits_ms.size() == 4);
}

TEST_CASE("tcp store, jobs: a member of a job that has ended does not wait for it") {
    const auto server = start_server("first", "s3cret");
    const auto member = enter(server->port(), "second", soon(), 0);
    REQUIRE(!member);
    CHECK(member.error().code == Code::peer_lost);
}

TEST_CASE("tcp store, jobs: the end of the server ends all jobs, and another process may serve") {
    auto server = start_server("first", "s3cret");
    const uint16_t port = server->port();
    const auto second = open_as_first(port, "second");
    REQUIRE(second);
    const auto member = enter(port, "second");
    REQUIRE(member);
    server.reset();
    for (const auto* store : {&second, &member}) {
        const auto told = (**store)->try_get("key", soon());
        REQUIRE(!told);
        CHECK(told.error().code == Code::peer_lost);
    }
    CHECK(open_as_first(port, "second"));
}

TEST_CASE("tcp store, jobs: a job with another secret is not opened") {
    const auto server = start_server("first", "s3cret");
    const auto second = open_as_first(server->port(), "second", "wr0ng");
    REQUIRE(!second);
    CHECK(contains(second.error().message, "is in use"));
    CHECK(contains(second.error().message, "does not open job 'second': "));
    CHECK(contains(second.error().message, "has another secret"));
}

TEST_CASE("tcp store, jobs: a server of version 0.1.0, which knows one job, is entered") {
    Reactor reactor;
    auto listener = net::listen_tcp({.host = "127.0.0.1", .port = 0});
    REQUIRE(listener);
    const uint16_t port = net::local_port(listener->get()).value();
    Bytes heard;
    std::vector<UniqueFd> clients;
    net::Acceptor acceptor(reactor, *std::move(listener),
                           {"s3cret", store_protocol::handshake_context("job")},
                           [&](UniqueFd fd, Bytes hello) {
                               heard = std::move(hello);
                               clients.push_back(std::move(fd));
                           },
                           {});
    Result<std::unique_ptr<Store>> store = fail(Code::system, "not yet");
    std::atomic<bool> done{false};
    std::thread rank([&] {
        store = enter(port, "job");
        done = true;
    });
    while (!done) reactor.poll(1);
    rank.join();
    REQUIRE(store);
    CHECK(clients.size() == 1);
    CHECK(heard == store_protocol::encode_store_hello({}));
}
