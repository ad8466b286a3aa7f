// Feeds a TCP connection arbitrary bytes from a peer that has passed the handshake.
#include <sys/socket.h>

#include <algorithm>

#include "base/fd.h"
#include "fuzz/catalog.h"
#include "fuzz/channels.h"
#include "transports/tcp/connection.h"
#include "wait/reactor.h"

namespace tutti::fuzz {
namespace {

// One thread writes and reads, so the socket's buffer must take a whole input.
constexpr std::size_t most_input_bytes = 64 * 1024;

struct ConnectionSink final : ChannelEvents {
    std::vector<std::unique_ptr<Receiver>> receivers;
    int losses = 0;
    void opened(const ChannelId&, std::unique_ptr<Receiver> receiver) override {
        receivers.push_back(std::move(receiver));
    }
    void lost(Rank peer, const std::string& cause) override {
        require(peer == 1 && !cause.empty(), "somebody else is blamed");
        ++losses;
    }
};

// A lane's thread: takes what it expects, and leaves some of it lying.
void read_some(ConnectionSink& sink, uint64_t turn) {
    for (std::size_t i = 0; i < sink.receivers.size(); ++i) {
        Receiver& receiver = *sink.receivers[i];
        if ((turn + i) % 3 == 0) continue;
        if (receiver.peek(tag_of(turn), 5).data) receiver.release();
    }
}

Bytes frame(tcp::Kind kind, uint32_t comm, uint16_t lane, std::string_view payload = {},
            uint16_t credits = 0) {
    tcp::Header header{
        .magic = tcp::Header::magic_of(kind), .comm = comm, .lane = lane, .credits = credits};
    header.bytes = static_cast<uint32_t>(payload.size());
    if (kind == tcp::Kind::data) header.tag = tag_of(1);
    return joined({ByteWriter().put(header).take(), to_bytes(payload)});
}

}  // namespace

// The first byte says in what pieces the rest comes.
void run_tcp(ByteView input) {
    Input in(input.first(std::min(input.size(), most_input_bytes)));
    const std::size_t piece = 1 + std::size_t{in.get<uint8_t>()} * 16;
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0,
            "no socketpair");
    UniqueFd peer(pair[1]);
    Reactor reactor;
    Retired retired;
    retired.insert(retired_comm);
    ConnectionSink sink;
    const auto connection = std::make_shared<tcp::Connection>(
        UniqueFd(pair[0]),
        tcp::Connection::Options{
            .rank = 0, .peer = 1, .data_reactor = &reactor, .retired = &retired, .events = &sink});
    require(connection->watch().has_value(), "the reactor refuses it");
    const auto sender = connection->open({.peer = 1, .comm = 7, .lane = 0});
    const std::byte hello[5]{};
    if (sender) (*sender)->push(tag_of(1), hello, sizeof hello);
    for (uint64_t turn = 0; !in.empty() && connection->health() == Code::ok; ++turn) {
        const ByteView some = in.take(piece);
        if (::send(peer.get(), some.data(), some.size(), MSG_NOSIGNAL) < 0) break;
        connection->progress();
        read_some(sink, turn);
        Bytes answers(16 * 1024);
        while (::recv(peer.get(), answers.data(), answers.size(), 0) > 0) {
        }
    }
    peer.reset();
    for (int turn = 0; turn < 1000 && connection->health() == Code::ok; ++turn) {
        connection->progress();
        read_some(sink, static_cast<uint64_t>(turn));
    }
    require(connection->health() == Code::peer_lost, "the end of the connection is not seen");
    require(sink.losses <= 1, "one peer is lost twice");
    sink.receivers.clear();
    connection->begin_close(Deadline::after_ms(0));
    connection->end_close();
}

std::vector<Bytes> seeds_tcp() {
    const Bytes piece(1, std::byte{255});
    return {
        joined({piece, frame(tcp::Kind::open, 7, 0), frame(tcp::Kind::data, 7, 0, "hello", 1),
                frame(tcp::Kind::data, 7, 0, "again"), frame(tcp::Kind::bye, 0, 0)}),
        joined({piece, frame(tcp::Kind::open, 7, 1), frame(tcp::Kind::credit, 7, 0, {}, 1),
                frame(tcp::Kind::data, 7, 1, ""),
                frame(tcp::Kind::data, 7, 1, std::string(300, 'x'))}),
        joined({piece, frame(tcp::Kind::open, retired_comm, 0),
                frame(tcp::Kind::data, retired_comm, 0, "late"), frame(tcp::Kind::open, 8, 3),
                frame(tcp::Kind::open, 8, 3)}),
    };
}

}  // namespace tutti::fuzz
