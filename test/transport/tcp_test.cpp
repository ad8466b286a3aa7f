// Tests TCP channels beyond the conformance suite: where messages are received, the state after a
// cancel, and when credits travel.
#include <sys/resource.h>

#include <cstdlib>
#include <random>

#include "support/sanitized.h"
#include "transport/tcp_fixture.h"

namespace tutti::test {
namespace {

/// While it lives there is no memory for blocks of that many bytes, only for some small ones.
class NoMemory {
public:
    explicit NoMemory(std::size_t bytes) {
        REQUIRE(getrlimit(RLIMIT_AS, &before_) == 0);
        const std::unique_ptr<void, decltype(&std::free)> small(std::malloc(100'000), &std::free);
        rlimit none = before_;
        none.rlim_cur = 1;
        REQUIRE(setrlimit(RLIMIT_AS, &none) == 0);
        while (void* block = std::malloc(bytes)) taken_.emplace_back(block, &std::free);
    }
    ~NoMemory() { setrlimit(RLIMIT_AS, &before_); }
    NoMemory(const NoMemory&) = delete;

private:
    rlimit before_{};
    std::vector<std::unique_ptr<void, decltype(&std::free)>> taken_;
};

/// False: the limit of memory has no effect. qemu-user accepts it and does nothing.
bool can_limit_memory() {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_AS, &before) == 0);
    rlimit set = before;
    set.rlim_cur = 1;
    const bool accepted = setrlimit(RLIMIT_AS, &set) == 0;
    getrlimit(RLIMIT_AS, &set);
    setrlimit(RLIMIT_AS, &before);
    return accepted && set.rlim_cur == 1;
}

TEST_CASE("tcp: a rank without memory for a message says so of itself") {
    if (sanitized) return;  // which need address space
    if (!can_limit_memory()) {
        WARN("skipped: this process's memory cannot be limited");
        return;
    }
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(open_frame(0)));
    const auto receiver = await_receiver(endpoint, 1, 0);
    const Buffer announcement = frame({.magic = tcp::Header::magic_of(tcp::Kind::data),
                                       .comm = 7,
                                       .bytes = static_cast<uint32_t>(large)});
    {
        const NoMemory none(large);
        REQUIRE(peer.send(announcement));
        REQUIRE(eventually({&endpoint}, [&] { return receiver->health() != Code::ok; }));
    }
    REQUIRE(eventually({&endpoint}, [&] { return !endpoint.sink.lost().empty(); }));
    CHECK(endpoint.sink.lost()[0].first == 0);
    CHECK(endpoint.sink.lost()[0].second.find(
              "it cannot continue with rank 1: no memory for a message of 262144 bytes") !=
          std::string::npos);
}

TEST_CASE("tcp: takes messages as large as its window says, and none that are larger") {
    constexpr std::size_t message = 2 << 20;
    constexpr JoinedTransport far{"tcp", [](const TransportContext& context) {
                                      TransportContext wide = context;
                                      wide.window_bytes = message * credits_per_channel;
                                      return make_tcp_transport(wide);
                                  }};
    Duo duo(far);
    CHECK(duo.a.transport->capabilities().max_message_bytes == message);
    CHECK(duo.a.transport->capabilities().usual_message_bytes == large);
    auto lane = duo.open(0);
    const Buffer data = pattern(message, 5);
    for (uint64_t number = 1; number <= 12; ++number) {
        REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->can_push(); }));
        lane.sender->push(make_tag(number), data.data(), data.size());
        REQUIRE(eventually({&duo.a, &duo.b}, [&] {
            return holds(lane.receiver->peek(make_tag(number), data.size()), data);
        }));
        lane.receiver->release();
    }
    TestEndpoint endpoint(far, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(
        joined_frames({open_frame(0), frame({.magic = tcp::Header::magic_of(tcp::Kind::data),
                                             .comm = 7,
                                             .bytes = message + 1})})));
    REQUIRE(eventually({&endpoint}, [&] { return !endpoint.sink.lost().empty(); }));
    CHECK(endpoint.sink.lost()[0].second.find("at most 2097152") != std::string::npos);
}

TEST_CASE("tcp: a window of any size leaves the messages that every version takes") {
    for (const std::size_t window : {std::size_t{0}, std::size_t{1} << 20, std::size_t{1} << 40}) {
        TransportContext context;
        context.window_bytes = window;
        const auto most = make_tcp_transport(context)->capabilities().max_message_bytes;
        CHECK(most >= tcp::max_message_bytes);
        CHECK(most <= tcp::max_far_message_bytes);
    }
}

// ---- offers ------------------------------------------------------------------------------------

TEST_CASE("tcp: receives into the offered memory when the offer comes before the message") {
    Duo duo(tcp_kind);
    auto lane = duo.open(0);
    uint64_t number = 0;
    for (const std::size_t bytes :
         {std::size_t{1}, std::size_t{4000}, std::size_t{70'000}, large}) {
        INFO("bytes " << bytes);
        const Tag tag = make_tag(++number);
        const Buffer data = pattern(bytes, number);
        Buffer wanted(bytes);
        lane.receiver->offer(tag, wanted.data(), bytes);
        lane.sender->push(tag, data.data(), bytes);
        Receiver::PeekedMessage message;
        REQUIRE(eventually({&duo.a, &duo.b}, [&] {
            message = lane.receiver->peek(tag, bytes);
            return message.data != nullptr && lane.sender->drained();
        }));
        REQUIRE(message.data == wanted.data());
        REQUIRE(wanted == data);
        lane.receiver->release();
    }
}

TEST_CASE("tcp: leaves a large message for its offer when it comes behind another") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    constexpr uint64_t messages = 6;
    std::vector<Buffer> sent;
    for (uint64_t i = 0; i < messages; ++i) sent.push_back(pattern(large, i));
    REQUIRE(peer.send(open_frame(0)));
    auto receiver = await_receiver(endpoint, 1, 0);
    std::thread writer([&] {
        for (uint64_t i = 0; i < messages; ++i) peer.send(data_frame(0, make_tag(i), sent[i]));
    });
    uint64_t honoured = 0, right = 0;
    const auto deadline = soon();
    for (uint64_t i = 0; i < messages; ++i) {
        Buffer wanted(large);
        receiver->offer(make_tag(i), wanted.data(), large);
        Receiver::PeekedMessage message;
        while (!message.data && !deadline.passed()) {
            endpoint.transport->progress();
            message = receiver->peek(make_tag(i), large);
        }
        honoured += message.data == wanted.data();
        right += holds(message, sent[i]);
        receiver->release();
    }
    writer.join();
    REQUIRE(right == messages);
    REQUIRE(honoured == messages);
}

TEST_CASE("tcp: keeps what is arriving in offered memory when the offer is taken back") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    const Buffer data = pattern(large, 3);
    const Buffer bytes = data_frame(0, make_tag(1), data);
    Buffer wanted(large, std::byte{0x55});
    REQUIRE(peer.send(open_frame(0)));
    auto receiver = await_receiver(endpoint, 1, 0);
    receiver->offer(make_tag(1), wanted.data(), large);
    const std::size_t half = bytes.size() / 2;
    REQUIRE(peer.send(ByteView(bytes).first(half)));
    REQUIRE(eventually({&endpoint}, [&] {
        return std::memcmp(wanted.data(), data.data(), half - sizeof(tcp::Header)) == 0;
    }));
    receiver->cancel();
    const Buffer after = wanted;
    REQUIRE(peer.send(ByteView(bytes).subspan(half)));
    Receiver::PeekedMessage message;
    REQUIRE(eventually({&endpoint}, [&] {
        message = receiver->peek(make_tag(1), large);
        return message.data != nullptr;
    }));
    REQUIRE(message.data != wanted.data());
    REQUIRE(holds(message, data));
    REQUIRE(wanted == after);
}

TEST_CASE("tcp: keeps a message that is whole in offered memory when the offer is taken back") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    const Buffer data = pattern(5000, 3);
    Buffer wanted(data.size());
    REQUIRE(peer.send(open_frame(0)));
    auto receiver = await_receiver(endpoint, 1, 0);
    receiver->offer(make_tag(1), wanted.data(), wanted.size());
    REQUIRE(peer.send(data_frame(0, make_tag(1), data)));
    REQUIRE(eventually({&endpoint}, [&] {
        return receiver->peek(make_tag(1), data.size()).data == wanted.data();
    }));
    receiver->cancel();
    std::fill(wanted.begin(), wanted.end(), std::byte{0});
    REQUIRE(holds(receiver->peek(make_tag(1), data.size()), data));
}

// ---- cancelling sends --------------------------------------------------------------------------

TEST_CASE("tcp: sends what it had accepted when the sender's memory is taken away in mid-frame") {
    const auto seed = std::random_device{}() % 100'000;
    INFO("seed " << seed);
    Duo duo(tcp_kind);
    constexpr uint16_t lanes = 12;
    constexpr uint64_t each = tcp::credits_per_channel;
    std::vector<Duo::Lane> all;
    for (uint16_t l = 0; l < lanes; ++l) all.push_back(duo.open(l));
    // The peer does not read yet: the kernel's buffers fill, and a frame stays half-sent.
    {
        std::vector<Buffer> dying;
        for (uint16_t l = 0; l < lanes; ++l) {
            for (uint64_t i = 0; i < each; ++i) {
                dying.push_back(pattern(i % 2 ? large : 100, seed + l * each + i));
                REQUIRE(all[l].sender->can_push());
                all[l].sender->push(make_tag(i), dying.back().data(), dying.back().size());
            }
        }
        bool stuck = false;
        for (auto& lane : all) stuck |= !lane.sender->drained();
        REQUIRE(stuck);
        for (auto& lane : all) {
            lane.sender->cancel();
            REQUIRE(lane.sender->drained());
        }
        for (Buffer& data : dying) std::fill(data.begin(), data.end(), std::byte{0xee});
    }
    for (uint16_t l = 0; l < lanes; ++l) {
        for (uint64_t i = 0; i < each; ++i) {
            const Buffer data = pattern(i % 2 ? large : 100, seed + l * each + i);
            Receiver::PeekedMessage message;
            REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                message = all[l].receiver->peek(make_tag(i), data.size());
                return message.data != nullptr;
            }));
            REQUIRE(message.tag == make_tag(i));
            REQUIRE(holds(message, data));
            all[l].receiver->release();
        }
    }
}

// ---- credits -----------------------------------------------------------------------------------

TEST_CASE("tcp: returns credits in one frame when half are owed") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(open_frame(3)));
    auto receiver = await_receiver(endpoint, 1, 3);
    const Buffer data = pattern(10, 1);
    for (uint64_t i = 0; i < 4; ++i) REQUIRE(peer.send(data_frame(3, make_tag(i), data)));
    for (uint64_t i = 0; i < 4; ++i) {
        REQUIRE(eventually(
            {&endpoint}, [&] { return receiver->peek(make_tag(i), data.size()).data != nullptr; }));
        receiver->release();
    }
    const tcp::Header header = peer.read_header();
    REQUIRE(header.magic == tcp::Header::magic_of(tcp::Kind::credit));
    REQUIRE(header.comm == 7);
    REQUIRE(header.lane == 3);
    REQUIRE(header.credits == 4);
}

TEST_CASE("tcp: returns credits with a message of the opposite direction") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(open_frame(3)));
    auto receiver = await_receiver(endpoint, 1, 3);
    // It has a connection to rank 1 already, so no address is needed.
    auto sender = endpoint.transport->open({.peer = 1, .comm = 7, .lane = 3}, {.rank = 1}, soon());
    REQUIRE(sender);
    const Buffer data = pattern(10, 1);
    REQUIRE(peer.send(data_frame(3, make_tag(0), data)));
    REQUIRE(eventually({&endpoint},
                       [&] { return receiver->peek(make_tag(0), data.size()).data != nullptr; }));
    receiver->release();
    (*sender)->push(make_tag(0), data.data(), data.size());
    REQUIRE(peer.read_header().magic == tcp::Header::magic_of(tcp::Kind::open));
    const tcp::Header header = peer.read_header();
    REQUIRE(header.magic == tcp::Header::magic_of(tcp::Kind::data));
    REQUIRE(header.credits == 1);
    REQUIRE(header.bytes == data.size());
}

TEST_CASE("tcp: drops the messages of a lane whose receiver is gone, and opens it again") {
    Duo duo(tcp_kind);
    auto lane = duo.open(5);
    const Buffer data = pattern(3000, 1);
    const auto push = [&](Sender& sender, uint64_t number) {
        REQUIRE(eventually({&duo.a, &duo.b}, [&] { return sender.can_push(); }));
        sender.push(make_tag(number), data.data(), data.size());
    };
    for (uint64_t i = 0; i < 5; ++i) push(*lane.sender, i);
    lane.receiver.reset();
    for (uint64_t i = 5; i < 40; ++i) push(*lane.sender, i);
    REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->drained(); }));
    const auto twice =
        duo.a.transport->open({.peer = 1, .comm = 7, .lane = 5}, duo.b.address, soon());
    REQUIRE_FALSE(twice);
    REQUIRE(twice.error().code == Code::invalid);
    lane.sender.reset();

    auto again = duo.open(5);
    push(*again.sender, 100);
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        return holds(again.receiver->peek(make_tag(100), data.size()), data);
    }));
}

}  // namespace
}  // namespace tutti::test
