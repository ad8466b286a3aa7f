#include "net/auth.h"

#include <set>
#include <thread>

#include "net_fixture.h"

using namespace tutti;
using namespace tutti::net;

namespace {

struct Outcome {
    Result<> client;
    AuthServer::State server = AuthServer::State::more;
    std::string server_error;
};

// The server's side as an acceptor would drive it, but blocking.
AuthServer::State serve(int fd, AuthServer& server, Deadline deadline) {
    auto state = AuthServer::State::more;
    while (state == AuthServer::State::more) {
        Bytes in(server.wants()), reply;
        if (!recv_all(fd, in, deadline)) return AuthServer::State::more;
        state = server.feed(in, reply);
        if (!send_all(fd, reply, deadline)) return AuthServer::State::more;
    }
    return state;
}

Outcome meet(const AuthKey& client_key, const AuthKey& server_key) {
    auto [client, server] = socket_pair();
    Outcome outcome;
    AuthServer machine(server_key);
    std::thread other([&, fd = std::move(server)]() mutable {
        outcome.server = serve(fd.get(), machine, soon());
        fd.reset();
    });
    outcome.client = authenticate_client(client.get(), client_key, soon());
    client.reset();
    other.join();
    outcome.server_error = machine.error().message;
    return outcome;
}

}  // namespace

TEST_CASE("authentication: succeeds with the same secret, also an empty one") {
    for (const std::string secret : {"s3cret", ""}) {
        const Outcome outcome = meet({secret, "store/job"}, {secret, "store/job"});
        CHECK(outcome.client);
        CHECK(outcome.server == AuthServer::State::done);
    }
}

TEST_CASE("authentication: the client finds out a server without the secret or of another job") {
    for (const AuthKey& wrong : {AuthKey{"other", "store/job"}, AuthKey{"", "store/job"},
                                 AuthKey{"s3cret", "store/other"}, AuthKey{"s3cret", ""}}) {
        INFO(wrong.secret << " " << wrong.context);
        const Outcome outcome = meet({"s3cret", "store/job"}, wrong);
        REQUIRE(!outcome.client);
        CHECK(outcome.client.error().code == Code::auth);
        CHECK(contains(outcome.client.error().advice, "TUTTI_SECRET"));
        CHECK(outcome.server != AuthServer::State::done);
    }
}

TEST_CASE("authentication: the server finds out a client without the secret, and closes") {
    AuthServer server({"s3cret", "store/job"});
    Bytes hello, reply;
    for (const char c : std::string("tutti/1\n")) hello.push_back(static_cast<std::byte>(c));
    hello.resize(server.wants());
    REQUIRE(server.feed(hello, reply) == AuthServer::State::more);
    REQUIRE(reply.size() == 64);
    // The server's own proof sent back is none for a client.
    const ByteView reflected = ByteView(reply).subspan(32);
    const Bytes proof(reflected.begin(), reflected.end());
    CHECK(server.feed(proof, reply) == AuthServer::State::failed);
    CHECK(reply.empty());
    CHECK(server.error().code == Code::auth);
    CHECK(contains(server.error().advice, "TUTTI_SECRET"));
    CHECK(server.wants() == 0);
    CHECK(server.feed(proof, reply) == AuthServer::State::failed);
}

TEST_CASE("authentication: a server that closes half way is told as such") {
    auto [client, server] = socket_pair();
    server.reset();
    const auto result = authenticate_client(client.get(), {"s", "c"}, soon());
    REQUIRE(!result);
    CHECK(result.error().code == Code::auth);
    CHECK(contains(result.error().message, "closed the connection during authentication"));
    CHECK(contains(result.error().advice, "TUTTI_SECRET"));
}

TEST_CASE("authentication: a silent server is a time-out, a babbling one an error") {
    auto [client, server] = socket_pair();
    const auto silent = authenticate_client(client.get(), {"s", "c"}, Deadline::after_ms(50));
    REQUIRE(!silent);
    CHECK(silent.error().code == Code::timeout);
    REQUIRE(send_all(server.get(), as_bytes(std::string(200, 'x')), soon()));
    CHECK(authenticate_client(client.get(), {"s", "c"}, soon()).error().code == Code::auth);
}

TEST_CASE("authentication: one changed bit anywhere in the exchange fails it") {
    const AuthKey key{"s3cret", "store/job"};
    std::mt19937 random(7);
    // The client's two messages are 40 and 32 bytes: each bit of the magic, the nonce and the proof
    // counts. A middle-man that passes everything on but for one bit.
    for (std::size_t at = 0; at < 72; ++at) {
        INFO("byte " << at);
        auto [client, client_end] = socket_pair();
        auto [server_end, server] = socket_pair();
        AuthServer machine(key);
        auto state = AuthServer::State::more;
        Result<> result;
        std::thread client_thread([&, fd = std::move(client)]() mutable {
            result = authenticate_client(fd.get(), key, soon());
            fd.reset();
        });
        std::size_t seen = 0;
        while (state == AuthServer::State::more) {
            Bytes in(machine.wants()), reply;
            if (!recv_all(client_end.get(), in, soon())) break;
            if (at >= seen && at < seen + in.size())
                in[at - seen] ^= std::byte{1} << static_cast<int>(random() % 8);
            seen += in.size();
            state = machine.feed(in, reply);
            if (!send_all(client_end.get(), reply, soon())) break;
        }
        client_end.reset();
        client_thread.join();
        CHECK(!result);
        CHECK(state != AuthServer::State::done);
    }
}

TEST_CASE("random bytes: differ, and hex has two digits for each") {
    std::set<std::string> seen;
    for (int i = 0; i < 100; ++i) seen.insert(*random_hex(16));
    CHECK(seen.size() == 100);
    CHECK(seen.begin()->size() == 32);
    CHECK(random_bytes(0)->empty());
}
