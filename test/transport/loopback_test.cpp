// The smallest port by itself, and the flat exchange over it; all else that its transport must do
// is in the conformance suite (joined.h).
#include "transport/flat_ranks.h"
#include "transport/loopback/port.h"
#include "transport/ports.h"

namespace tutti::test {
namespace {

class PortOnly final : public fabric::PortFactory {
public:
    std::string_view name() const override { return "loopback"; }
    std::string version() const override { return "1"; }
    std::string path() const override { return "queues"; }
    Result<std::unique_ptr<Port>> open(fabric::PortEvents& events) override {
        return std::make_unique<LoopbackPort>(events);
    }
};
Result<std::unique_ptr<fabric::PortFactory>> make(Rank) {
    return std::make_unique<PortOnly>();
}

TEST_CASE("loopback port: carries messages of all sizes, both ways") {
    PortDuo duo(make);
    const std::size_t eager = duo.a.port->limits().eager_bytes;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, eager, eager + 1, 1UL << 20}) {
        exchange(duo, duo.a, duo.b, 1, bytes);
        exchange(duo, duo.b, duo.a, 0, bytes);
    }
}

TEST_CASE("loopback port: tells the sender when a payload is not wanted") {
    PortDuo duo(make);
    const Buffer data = pattern(100'000, 3);
    for (const bool dropped_in_event : {false, true}) {
        duo.b.log.drop_all = dropped_in_event;
        int context = 0;
        REQUIRE(send_patiently({&duo.a}, duo.a, 1, 1, data, &context) == fabric::Progress::pending);
        REQUIRE(turning({&duo.b}, [&] { return !duo.b.log.messages.empty(); }));
        if (!dropped_in_event) duo.b.port->release(duo.b.log.messages.front().hold);
        REQUIRE(turning({&duo.a}, [&] { return !duo.a.log.sent_contexts.empty(); }));
        REQUIRE(duo.a.log.sent_contexts == std::vector<void*>{&context});
        REQUIRE(duo.a.log.unsent_contexts.empty());
        duo.a.log.sent_contexts.clear();
        duo.b.log.messages.clear();
    }
}

TEST_CASE("loopback port: a disconnect ends what is under way, and the peer hears of it once") {
    PortDuo duo(make);
    const Buffer data = pattern(100'000, 3);
    int there = 0, back = 0;
    REQUIRE(send_patiently({&duo.a}, duo.a, 1, 1, data, &there) == fabric::Progress::pending);
    REQUIRE(send_patiently({&duo.b}, duo.b, 0, 2, data, &back) == fabric::Progress::pending);
    REQUIRE(turning({&duo.b}, [&] { return duo.b.log.messages.size() == 1; }));
    duo.a.port->disconnect(1);
    REQUIRE(duo.a.log.unsent_contexts == std::vector<void*>{&there});
    Buffer got(data.size());
    void* const hold = duo.b.log.messages.front().hold;
    REQUIRE(duo.b.port->fetch(hold, got.data(), got.size(), &got) == fabric::Progress::failed);
    duo.b.port->release(hold);
    REQUIRE(turning({&duo.b}, [&] { return !duo.b.log.losses.empty(); }));
    REQUIRE(duo.b.log.losses.front().first == 0);
    REQUIRE(duo.b.port->send(0, data.data(), data.data(), 8, nullptr) == fabric::Progress::failed);
    duo.b.port->disconnect(0);
    REQUIRE(duo.b.log.unsent_contexts == std::vector<void*>{&back});

    duo.a.port.reset();
    duo.b.turn();
    REQUIRE(duo.b.log.losses.size() == 1);
    REQUIRE((duo.a.log.messages.empty() && duo.a.log.losses.empty()));
}

TEST_CASE("loopback port: a port that goes is its peers' loss, whether or not it knew them") {
    PortEnd a(make, 0), b(make, 1);
    REQUIRE(b.port->connect(0, a.port->address()));
    const Bytes address = a.port->address();
    a.port.reset();
    REQUIRE(turning({&b}, [&] { return !b.log.losses.empty(); }));
    REQUIRE(b.log.losses.front().first == 0);
    const auto refused = b.port->connect(0, address);
    REQUIRE_FALSE(refused);
    REQUIRE(refused.error().code == Code::unsupported);
    REQUIRE_FALSE(b.port->connect(2, {}));
}

TEST_CASE("loopback: flat sums are right, and a mismatch is told to all") {
    FlatRanks ranks({"loopback", make_loopback_transport}, 3);
    REQUIRE(ranks.each([&](Rank me) {
        const auto sum = ranks.bind(me, allreduce_shape(2));
        int wrong = 0;
        for (uint64_t number = 1; number <= 200; ++number) {
            std::array<float, 2> data{value(number, me, 0), value(number, me, 1)};
            wrong += run(*sum, make_tag(number), data.data(), data.data()) != Code::ok;
            for (std::size_t i = 0; i < data.size(); ++i)
                wrong += data[i] != value(number, 0, i) + value(number, 1, i) + value(number, 2, i);
        }
        return wrong;
    }) == 0);
    FlatRanks others({"loopback", make_loopback_transport}, 3);
    check_mismatch(others);
}

}  // namespace
}  // namespace tutti::test
