// Communicators that have gone: their channels are forgotten, what was sent arrives all the same,
// and what comes late is dropped.
#include "transport/all_channels.h"
#include "transport/posted/flow_table.h"
#include "transport/tcp_fixture.h"

namespace tutti::test {
namespace {

Buffer late_data(uint64_t number, std::size_t bytes) {
    return data_frame(3, make_tag(number), pattern(bytes, number));
}

/// Keeps an endpoint turning while the test talks to it by hand.
class Turner {
public:
    explicit Turner(TestEndpoint& endpoint)
        : thread_([this, &endpoint] {
              while (!done_) endpoint.turn();
          }) {}
    ~Turner() {
        done_ = true;
        thread_.join();
    }

private:
    std::atomic<bool> done_{false};
    std::thread thread_;
};

TEST_CASE("tcp: forgets the channels of retired communicators, so that there are always new ones") {
    Duo duo(tcp_kind);
    const Buffer data = pattern(100, 1);
    for (uint32_t comm = 1; comm <= max_channels + 100; ++comm) {
        auto sender =
            duo.a.transport->open({.peer = 1, .comm = comm, .lane = 0}, duo.b.address, soon());
        INFO((sender ? "" : sender.error().message));
        REQUIRE(sender);
        (*sender)->push(make_tag(comm), data.data(), data.size());
        std::unique_ptr<Receiver> receiver;
        REQUIRE(eventually({&duo.a, &duo.b}, [&] {
            if (!receiver) receiver = duo.b.sink.take({.peer = 0, .comm = comm, .lane = 0});
            return receiver && holds(receiver->peek(make_tag(comm), data.size()), data);
        }));
        // One side is always quicker than the other.
        for (TestEndpoint* end : {&duo.a, &duo.b}) end->transport->retire(comm);
        if (comm % 2 == 0) receiver.reset();
        sender->reset();
        receiver.reset();
    }
    REQUIRE((duo.a.sink.lost().empty() && duo.b.sink.lost().empty()));
    const auto again =
        duo.a.transport->open({.peer = 1, .comm = 9, .lane = 0}, {.rank = 1}, soon());
    REQUIRE_FALSE(again);
    REQUIRE(again.error().code == Code::invalid);
}

TEST_CASE("tcp: two ranks may open all their channels, in whichever order they hear of them") {
    for (const bool hears : {false, true}) {
        Duo duo(tcp_kind);
        open_all_channels(duo, max_channels, hears);
    }
}

TEST_CASE("tcp: drops what comes late for a retired communicator and gives the credits back") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(joined_frames({open_frame(3), late_data(0, 100)})));
    auto receiver = await_receiver(endpoint, 1, 3);
    endpoint.transport->retire(7);
    receiver.reset();
    const auto credit = [](uint16_t lane, uint16_t credits) {
        return frame({.magic = tcp::Header::magic_of(tcp::Kind::credit),
                      .comm = 7,
                      .lane = lane,
                      .credits = credits});
    };
    // More than one batch; of lanes that were never there too, and of all sizes.
    constexpr uint64_t messages = 200;
    std::thread writer([&] {
        peer.send(joined_frames({open_frame(4), credit(3, 1), credit(5, 8)}));
        for (uint64_t i = 1; i <= messages; ++i)
            peer.send(late_data(i, i % 50 == 0 ? large : i % 3 * 2000));
    });
    uint64_t credits = 0;
    std::thread reader([&] {
        while (credits < messages) {
            const tcp::Header header = peer.read_header();
            if (header.kind() != tcp::Kind::credit || header.comm != 7 || header.lane != 3) break;
            credits += header.credits;
        }
    });
    {
        const Turner turner(endpoint);
        writer.join();
        reader.join();
    }
    REQUIRE(credits == messages);
    REQUIRE(endpoint.sink.take({.peer = 1, .comm = 7, .lane = 4}) == nullptr);
    REQUIRE(endpoint.sink.lost().empty());
    // Others are there as before.
    REQUIRE(peer.send(open_frame(1, 8)));
    REQUIRE(eventually({&endpoint}, [&] {
        return endpoint.sink.take({.peer = 1, .comm = 8, .lane = 1}) != nullptr;
    }));
}

TEST_CASE("tcp: sends what it had accepted when the communicator retires before it has left") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    RawPeer peer(endpoint, 1);
    REQUIRE(peer.send(open_frame(3)));
    auto receiver = await_receiver(endpoint, 1, 3);
    constexpr uint16_t lanes = 12;
    constexpr uint64_t each = tcp::credits_per_channel;
    bool stuck = false;
    {
        // The peer does not read yet: the kernel's buffers fill, and a frame stays half-sent.
        const Buffer data = pattern(large, 1);
        std::vector<std::unique_ptr<Sender>> senders;
        for (uint16_t l = 0; l < lanes; ++l) {
            auto opened =
                endpoint.transport->open({.peer = 1, .comm = 7, .lane = l}, {.rank = 1}, soon());
            REQUIRE(opened);
            senders.push_back(std::move(*opened));
            for (uint64_t i = 0; i < each; ++i)
                senders.back()->push(make_tag(i), data.data(), data.size());
        }
        for (const auto& sender : senders) stuck |= !sender->drained();
        endpoint.transport->retire(7);
        receiver.reset();
    }
    REQUIRE(stuck);
    const Turner turner(endpoint);
    const Buffer data = pattern(large, 1);
    uint64_t right = 0;
    for (int opened = 0; right < lanes * each;) {
        const tcp::Header header = peer.read_header();
        if (header.kind() == tcp::Kind::open && ++opened <= lanes) continue;
        if (header.kind() != tcp::Kind::data || peer.read(header.bytes) != data) break;
        ++right;
    }
    REQUIRE(right == lanes * each);
}

}  // namespace
}  // namespace tutti::test
