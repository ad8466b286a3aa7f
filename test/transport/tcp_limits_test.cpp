// Tests that a connection bounds the memory that a peer can make it keep (transport/peer_limits.h).
#include <sys/socket.h>

#include "transport/tcp_fixture.h"
#include "transports/tcp/connection.h"

namespace tutti::test {
namespace {

constexpr std::size_t message_bytes = 60'000;
constexpr std::size_t most_unread = 1'000'000;

struct Events final : ChannelEvents {
    std::vector<std::unique_ptr<Receiver>> receivers;  // in the order of their lanes
    std::string cause;
    void opened(const ChannelId&, std::unique_ptr<Receiver> receiver) override {
        receivers.push_back(std::move(receiver));
    }
    void lost(Rank peer, const std::string& why) override {
        CHECK(peer == 1);
        cause = why;
    }
};

// A connection whose other end the test writes to.
struct Wired {
    Wired() {
        int fds[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
        peer = UniqueFd(fds[1]);
        connection = std::make_shared<tcp::Connection>(
            UniqueFd(fds[0]), tcp::Connection::Options{.rank = 0,
                                                       .peer = 1,
                                                       .data_reactor = &reactor,
                                                       .retired = &retired,
                                                       .events = &events,
                                                       .limits = {.unread_bytes = most_unread}});
        REQUIRE(connection->watch());
    }
    ~Wired() {
        events.receivers.clear();
        connection->begin_close(Deadline::after_ms(0));
        connection->end_close();
    }
    void send(ByteView bytes) {
        while (!bytes.empty() && connection->health() == Code::ok) {
            const ssize_t sent = ::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent > 0) bytes = bytes.subspan(static_cast<std::size_t>(sent));
            connection->progress();
        }
    }
    // Messages that the credits allow.
    void send_messages(uint16_t lane, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i)
            send(data_frame(lane, make_tag(i), pattern(message_bytes, i)));
    }

    Reactor reactor;
    Retired retired;
    Events events;
    UniqueFd peer;
    std::shared_ptr<tcp::Connection> connection;
};

TEST_CASE("tcp: a peer is lost that sends too many bytes which nobody reads") {
    Wired wired;
    for (uint16_t lane = 0; lane < 4; ++lane) wired.send(open_frame(lane));
    REQUIRE(wired.events.receivers.size() == 4);
    // Twenty times as much is no harm while it is read.
    Receiver& read = *wired.events.receivers[0];
    for (uint64_t i = 0; i < 20 * most_unread / message_bytes; ++i) {
        wired.send(data_frame(0, make_tag(i), pattern(message_bytes, i)));
        REQUIRE(read.peek(make_tag(i), message_bytes).data);
        read.release();
        Buffer credits(4096);
        while (::recv(wired.peer.get(), credits.data(), credits.size(), 0) > 0) {
        }
    }
    // Nor are two lanes' credits of it.
    wired.send_messages(1, tcp::credits_per_channel);
    wired.send_messages(2, tcp::credits_per_channel);
    CHECK(wired.events.cause == "");
    wired.send_messages(3, tcp::credits_per_channel);
    CHECK(wired.events.cause ==
          "it sent more than 1000000 bytes that this rank has not read");
}

}  // namespace
}  // namespace tutti::test
