// Frames that break the rules, from a peer that knows the secret: the connection ends with a cause,
// and nothing else suffers.
#include <random>

#include "transport/posted/flow_table.h"
#include "transport/tcp_fixture.h"

namespace tutti::test {
namespace {

using tcp::Header;
using tcp::Kind;

constexpr Rank ranks = 1000;

struct Violation {
    const char* name;
    const char* cause;
    Buffer bytes;
};

Buffer too_many_messages() {
    Buffer out = open_frame(0);
    for (uint64_t i = 0; i <= tcp::credits_per_channel; ++i) {
        const Buffer one = data_frame(0, make_tag(i), Buffer(5));
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

Buffer too_many_channels() {
    Buffer out;
    for (uint32_t i = 0; i <= max_channels_taken; ++i) {
        const Buffer one = open_frame(static_cast<uint16_t>(i), i * 31);
        out.insert(out.end(), one.begin(), one.end());
    }
    return out;
}

std::vector<Violation> violations() {
    const auto magic = [](Kind kind) { return Header::magic_of(kind); };
    return {
        {"noise", "not a frame", Buffer(4096, std::byte{0xa5})},
        {"no kind", "unknown kind 0", frame({.magic = tcp::frame_magic})},
        {"unknown kind", "unknown kind 9", frame({.magic = tcp::frame_magic | 9})},
        {"payload of an open frame", "with a payload",
         frame({.magic = magic(Kind::open), .bytes = 8})},
        {"payload of a goodbye", "with a payload", frame({.magic = magic(Kind::bye), .bytes = 1})},
        {"lane that is not open", "not opened", data_frame(1, make_tag(1), Buffer(8))},
        {"huge length", "4294967295 bytes",
         joined_frames(
             {open_frame(0), frame({.magic = magic(Kind::data), .comm = 7, .bytes = 0xffffffff})})},
        {"length over the limit by one", "at most 262144",
         joined_frames({open_frame(0), frame({.magic = magic(Kind::data),
                                              .comm = 7,
                                              .bytes = tcp::max_message_bytes + 1})})},
        {"more messages than credits", "credits allow", too_many_messages()},
        {"more channels than allowed", "there are 8192 channels", too_many_channels()},
        {"credits for nothing", "did not owe",
         joined_frames(
             {open_frame(0), frame({.magic = magic(Kind::credit), .comm = 7, .credits = 1})})},
        {"credits for a lane nobody knows", "did not owe",
         frame({.magic = magic(Kind::credit), .comm = 8, .lane = 3, .credits = 65535})},
        {"half a header", "without a goodbye", Buffer(20, std::byte{0x54})},
        {"half a message", "without a goodbye",
         joined_frames(
             {open_frame(0), frame({.magic = magic(Kind::data), .comm = 7, .bytes = 100'000})})},
        {"nothing at all", "without a goodbye", {}},
    };
}

/// Rank 1, well-behaved, with a lane to the endpoint.
struct Friend {
    explicit Friend(TestEndpoint& target) : endpoint(tcp_kind, 1, ranks), to(target) {
        lane = Duo::open(endpoint, to, 0);
    }
    void talk() {
        const Buffer data = pattern(9000, ++number);
        REQUIRE(eventually({&endpoint, &to}, [&] { return lane.sender->can_push(); }));
        lane.sender->push(make_tag(number), data.data(), data.size());
        REQUIRE(eventually({&endpoint, &to}, [&] {
            return holds(lane.receiver->peek(make_tag(number), data.size()), data);
        }));
        lane.receiver->release();
        REQUIRE(eventually({&endpoint, &to}, [&] { return lane.sender->drained(); }));
    }
    TestEndpoint endpoint;
    TestEndpoint& to;
    Duo::Lane lane;
    uint64_t number = 0;
};

TEST_CASE("tcp: ends the connection, and only that, when a frame breaks the rules") {
    TestEndpoint endpoint(tcp_kind, 0, ranks);
    Friend good(endpoint);
    Rank rank = 2;
    for (const Violation& violation : violations()) {
        INFO(violation.name);
        RawPeer peer(endpoint, rank);
        peer.send(violation.bytes);
        if (std::string_view(violation.cause) == "without a goodbye") peer.hang_up();
        const std::size_t before = endpoint.sink.lost().size();
        REQUIRE(eventually({&endpoint}, [&] {
            const auto lost = endpoint.sink.lost();
            return !lost.empty() && lost.back().first == rank;
        }));
        for (int i = 0; i < 20; ++i) endpoint.turn();
        const auto lost = endpoint.sink.lost();
        REQUIRE(lost.size() <= before + 1);
        INFO(lost.back().second);
        REQUIRE(lost.back().second.find(violation.cause) != std::string::npos);
        good.talk();
        ++rank;
    }
}

TEST_CASE("tcp: ends the connection when a message has another size than its call") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(joined_frames({open_frame(0), data_frame(0, make_tag(1), Buffer(100))})));
    auto receiver = await_receiver(endpoint, 1, 0);
    REQUIRE(eventually({&endpoint}, [&] {
        REQUIRE(receiver->peek(make_tag(1), 101).data == nullptr);
        return receiver->health() == Code::peer_lost;
    }));
    const auto lost = endpoint.sink.lost();
    REQUIRE(lost.size() == 1);
    REQUIRE(lost[0].second.find("100 bytes where its call has 101") != std::string::npos);
}

TEST_CASE("tcp: takes frames that arrive byte by byte, and an orderly end") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    const Buffer data = pattern(300, 1);
    const Buffer all = joined_frames({open_frame(0), data_frame(0, make_tag(1), data),
                                      data_frame(0, make_tag(2), {}),
                                      frame({.magic = Header::magic_of(Kind::bye)})});
    for (const std::byte& one : all) {
        REQUIRE(peer.send({&one, 1}));
        endpoint.turn();
    }
    peer.hang_up();
    auto receiver = await_receiver(endpoint, 1, 0);
    REQUIRE(holds(receiver->peek(make_tag(1), data.size()), data));
    receiver->release();
    REQUIRE(receiver->peek(make_tag(2), 0).data != nullptr);
    REQUIRE(receiver->health() == Code::ok);
    receiver->release();
    REQUIRE(eventually({&endpoint}, [&] { return receiver->health() == Code::peer_lost; }));
    REQUIRE(endpoint.sink.lost().empty());
}

TEST_CASE("tcp: hangs up on a peer that said goodbye and goes on") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    const Buffer bye = frame({.magic = Header::magic_of(Kind::bye)});
    REQUIRE(peer.send(joined_frames({open_frame(0), bye, open_frame(1)})));
    auto receiver = await_receiver(endpoint, 1, 0);
    REQUIRE(eventually({&endpoint}, [&] { return receiver->health() == Code::peer_lost; }));
    REQUIRE(endpoint.sink.take({.peer = 1, .comm = 7, .lane = 1}) == nullptr);
    // It left of its own will: that is nobody's loss.
    REQUIRE(endpoint.sink.lost().empty());
}

TEST_CASE("tcp: refuses a fifth connection of one rank, and ranks that do not exist") {
    TestEndpoint endpoint(tcp_kind, 0, 8);
    std::vector<std::unique_ptr<RawPeer>> peers;
    for (uint16_t i = 0; i < 4; ++i) {
        peers.push_back(std::make_unique<RawPeer>(endpoint, 3));
        REQUIRE(peers.back()->send(open_frame(i)));
        await_receiver(endpoint, 3, i);
    }
    for (const Rank rank : {3, 8, -1}) {
        INFO("rank " << rank);
        RawPeer refused(endpoint, rank);
        Buffer answer(1);
        bool hung_up = false;
        REQUIRE(eventually({&endpoint}, [&] { return hung_up = !refused.send(open_frame(9)); }));
        REQUIRE(hung_up);
    }
    REQUIRE(endpoint.sink.take({.peer = 3, .comm = 7, .lane = 9}) == nullptr);
}

// Valid conversations with a few bytes changed, in pieces of any size.
TEST_CASE("tcp: survives damaged conversations") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    std::minstd_rand random(static_cast<uint32_t>(seed + 1));
    TestEndpoint endpoint(tcp_kind, 0, ranks);
    Friend good(endpoint);
    for (Rank rank = 2; rank < 202; ++rank) {
        INFO("rank " << rank);
        Buffer bytes;
        const auto add = [&](const Buffer& one) {
            bytes.insert(bytes.end(), one.begin(), one.end());
        };
        for (uint16_t lane = 0; lane < 3; ++lane) add(open_frame(lane));
        for (uint64_t i = 0; i < 12; ++i)
            add(data_frame(static_cast<uint16_t>(random() % 3), make_tag(i),
                           pattern(random() % (random() % 8 == 0 ? 70'000 : 200), i)));
        // A goodbye is nobody's loss: no frame is to become one.
        const auto goodbye = static_cast<std::byte>(Header::magic_of(Kind::bye));
        for (uint64_t damage = random() % 4; damage > 0; --damage) {
            const auto other = static_cast<std::byte>(random());
            bytes[random() % (damage % 2 ? bytes.size() : 200)] =
                other == goodbye ? ~goodbye : other;
        }
        if (random() % 2) bytes.resize(random() % bytes.size());
        RawPeer peer(endpoint, rank);
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t piece = std::min<std::size_t>(bytes.size() - at, 1 + random() % 9000);
            if (!peer.send(ByteView(bytes).subspan(at, piece))) break;
            at += piece;
            endpoint.turn();
        }
        peer.hang_up();
        REQUIRE(eventually({&endpoint}, [&] {
            const auto lost = endpoint.sink.lost();
            return !lost.empty() && lost.back().first == rank;
        }));
    }
    REQUIRE(endpoint.sink.lost().size() == 200);
    good.talk();
}

}  // namespace
}  // namespace tutti::test
