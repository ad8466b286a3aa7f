// The flat exchange over a library that misbehaves, and over one that peers misuse.
#include <array>
#include <random>

#include "fabric/slot_board.h"
#include "transport/fake_port.h"
#include "transport/flat_ranks.h"

namespace tutti::test {
namespace {

using fabric::Header;
using fabric::Kind;

struct FakeRanks : GoodManners, FlatRanks {
    explicit FakeRanks(Rank n) : FlatRanks(fake_kind, n) {}
};

Deadline patience() {
    return Deadline::after_ms(patience_ms);
}

constexpr std::array<std::size_t, 6> counts{1, 2, 0, 7, 64, 112};

// One rank's part of a sequence of sums and barriers on one stream; the number of wrong results.
int sums(FlatRanks& ranks, Rank me, uint32_t stream, uint64_t operations, uint64_t seed) {
    std::minstd_rand choose(static_cast<uint32_t>(seed + stream + 1));  // the same on all ranks
    int wrong = 0;
    std::vector<float> in, out;
    for (uint64_t number = 1; number <= operations; ++number) {
        const std::size_t count = counts[choose() % counts.size()];
        const bool barrier = choose() % 4 == 0;
        const bool in_place = choose() % 2 == 0;
        in.resize(count);
        out.assign(count, -1.0F);
        for (std::size_t i = 0; i < count; ++i) in[i] = value(number, me, i);
        float* to = in_place ? in.data() : out.data();
        const auto operation =
            ranks.bind(me, barrier ? barrier_shape(stream)
                                   : allreduce_shape(count, Dtype::float32, Op::sum, stream));
        if (!operation || run(*operation, make_tag(number), in.data(), to) != Code::ok)
            return wrong + 1000;
        for (std::size_t i = 0; !barrier && i < count; ++i) {
            float expected = 0;
            for (Rank r = 0; r < ranks.size(); ++r) expected += value(number, r, i);
            wrong += to[i] != expected;
        }
    }
    return wrong;
}

TEST_CASE("fabric: flat sums are right when messages overtake each other and there is no room") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    for (const Rank n : {2, 3, 8}) {
        FakeRanks ranks(n);
        seed_draws(seed + 1);
        manners = {.busy = 30, .slow = 40, .reorder = true};
        REQUIRE(ranks.each([&](Rank me) {
            int other_wrong = 0;
            std::thread other([&] { other_wrong = sums(ranks, me, 1, 100, seed); });
            const int wrong = sums(ranks, me, 0, 100, seed);
            other.join();
            return wrong + other_wrong;
        }) == 0);
    }
}

TEST_CASE("fabric: a flat sum that others called differently is told to all, and the next works") {
    FakeRanks ranks(3);
    check_mismatch(ranks);
}

TEST_CASE("fabric: of two contributions that cross, each takes the way that the other does not") {
    FakeRanks ranks(3);
    REQUIRE(ranks.each([&](Rank me) { return sums(ranks, me, 0, 5, 1); }) == 0);
    for (Rank a = 0; a < 3; ++a)
        for (Rank b = 0; b < a; ++b) {
            const std::vector<unsigned> ways{0, 1, 0, 1, 0}, others{1, 0, 1, 0, 1};
            const auto port = [](Rank r) { return fake_ports[static_cast<std::size_t>(r)]; };
            REQUIRE(port(a)->ways_to(b) == ways);
            REQUIRE(port(b)->ways_to(a) == others);
        }
}

// Rank 0 of two; the test makes up and injects the messages of rank 1.
struct Listener {
    Listener() : sum(ranks.bind(0, allreduce_shape(1))) {
        template_.magic = Header::magic_of(Kind::contribution);
        template_.sender = 1;
        template_.comm = 3;
        template_.bytes = sizeof(float);
        template_.position = 1;
        template_.tag = make_tag(1, 2);
    }
    /// With the nonce that the rank's own address has.
    Header header() const {
        Header out = template_;
        const auto address =
            fabric::decode_address("fake", fake_version, ranks.addresses()(0)->address);
        out.nonce = address->nonce;
        return out;
    }
    static void put(const Header& header, float what) {
        Buffer payload(header.bytes);
        if (!payload.empty())
            std::memcpy(payload.data(), &what, std::min(payload.size(), sizeof what));
        fake_ports[0]->inject(header, payload);
    }
    void hear(const Header& header, float what) {
        put(header, what);
        for (int i = 0; i < 4; ++i) ranks.endpoint(0).turn();
    }
    Poll sum_with(float own, float* result) {
        sum->start(make_tag(1, 2), &own, result);
        return sum->progress();
    }

    FakeRanks ranks{2};
    std::unique_ptr<Operation> sum;

private:
    Header template_;
};

TEST_CASE("fabric: what a failed epoch left on its way does not displace the next one's") {
    Listener one;
    one.hear(one.header(), 40);
    Header late = one.header();
    late.tag = make_tag(7, 1);
    one.hear(late, 1000);
    float result = 0;
    REQUIRE(one.sum_with(2, &result) == Code::ok);
    REQUIRE(result == 42);
}

// It was sent to wake this rank, which found what was written and went on.
TEST_CASE("fabric: a contribution that comes after what was written in its place is dropped") {
    using fabric::SlotStream;
    const auto turn = [](uint64_t number, uint64_t epoch) {
        return SlotStream::turn_of(make_tag(1, epoch), number);
    };
    REQUIRE(SlotStream::is_past(turn(5, 1), turn(5, 1)));
    REQUIRE(SlotStream::is_past(turn(7, 1), turn(5, 1)));
    REQUIRE_FALSE(SlotStream::is_past(turn(5, 1), turn(7, 1)));
    REQUIRE(SlotStream::is_past(turn(1, 2), turn(7, 1)));
    REQUIRE_FALSE(SlotStream::is_past(turn(7, 1), turn(1, 2)));
    REQUIRE_FALSE(SlotStream::is_past(0, turn(1, 1)));
    // Only 32 bits of a number are compared: 2^32 calls take minutes.
    constexpr uint64_t last = 0xffff'ffff;
    REQUIRE(SlotStream::is_past(turn(last + 2, 1), turn(last, 1)));
    REQUIRE_FALSE(SlotStream::is_past(turn(last, 1), turn(last + 2, 1)));

    Listener one;
    one.hear(one.header(), 40);
    one.hear(one.header(), 1000);
    float result = 0;
    REQUIRE(one.sum_with(2, &result) == Code::ok);
    REQUIRE(result == 42);
}

TEST_CASE("fabric: contributions that cannot be are their sender's end, and nobody else's") {
    const auto refused = [](auto change, const char* why) {
        Listener one;
        Header wrong = one.header();
        change(wrong);
        one.hear(wrong, 1);
        float result = 0;
        REQUIRE(one.sum_with(2, &result) == Code::in_progress);
        one.sum->cancel();
        const auto lost = one.ranks.endpoint(0).sink.lost();
        REQUIRE(lost.size() == 1);
        REQUIRE(lost[0].first == 1);
        INFO(lost[0].second);
        REQUIRE(lost[0].second.find(why) != std::string::npos);
    };
    refused([](Header& h) { h.lane = flat_streams; }, "no slot for them");
    refused([](Header& h) { h.bytes = fabric::flat_max_bytes + 1; }, "no slot for them");
    refused([](Header& h) { h.bytes = 8; }, "8 bytes where its call has 4");
}

TEST_CASE("fabric: contributions to a group that is not there are dropped") {
    Listener one;
    Header header = one.header();
    header.comm = 4;
    one.hear(header, 1);
    REQUIRE(one.ranks.endpoint(0).sink.lost().empty());
    one.hear(one.header(), 40);
    float result = 0;
    REQUIRE(one.sum_with(2, &result) == Code::ok);
    REQUIRE(result == 42);
}

// The service thread's tick finds what comes to a library that does not ring.
TEST_CASE("fabric: flat sums wake a rank that sleeps") {
    FakeRanks ranks(2);
    check_waking(ranks, 10);
}

// In a broadcast, a rank that takes itself for the root leaves unread what the other roots send.
TEST_CASE("fabric: a flat exchange tells of a message that an earlier call left unread") {
    FakeRanks ranks(2);
    const auto sender = ranks.endpoint(1).transport->open({.peer = 0, .comm = 3, .lane = 0},
                                                          ranks.endpoint(0).address, patience());
    REQUIRE(sender);
    REQUIRE(ranks.each([&](Rank me) { return sums(ranks, me, 0, 10, 1); }) == 0);
    const Buffer data = pattern(8, 1);
    const auto here = ranks.bind(0, allreduce_shape(1)), there = ranks.bind(1, allreduce_shape(1));
    std::array<float, 2> values{1, 2};
    (*sender)->push(make_tag(11), data.data(), data.size());
    there->start(make_tag(12), &values[1], &values[1]);
    REQUIRE(there->progress() == Code::in_progress);
    // Also when all that it waits for is there before it looks.
    if (GENERATE(false, true)) ranks.endpoint(0).turn();
    here->start(make_tag(12), &values[0], &values[0]);
    const Poll poll = finish(*here);
    REQUIRE(poll == Code::mismatch);
    REQUIRE(poll.failure->error.rank == 1);
    REQUIRE(poll.failure->got == make_tag(11));
    REQUIRE(finish(*there) == Code::ok);

    // One of a call that is yet to come is no such message.
    FakeRanks others(2);
    const auto ahead = others.endpoint(1).transport->open({.peer = 0, .comm = 3, .lane = 0},
                                                          others.endpoint(0).address, patience());
    REQUIRE(ahead);
    (*ahead)->push(make_tag(3), data.data(), data.size());
    REQUIRE(others.each([&](Rank me) {
        const auto sum = others.bind(me, allreduce_shape(1));
        float value = 1;
        return run(*sum, make_tag(2), &value, &value) == Code::ok && value == 2 ? 0 : 1;
    }) == 0);
}

// One thread waits for two streams: what comes for the first while it looks at the second.
TEST_CASE("fabric: a thread that moves what it waits for by itself does not sleep on that") {
    Listener one;
    const auto second = one.ranks.bind(0, allreduce_shape(1, Dtype::float32, Op::sum, 1));
    float own = 2, result = 0;
    one.sum->start(make_tag(1, 2), &own, &result);
    second->start(make_tag(2, 2), &own, &own);
    REQUIRE(one.sum->progress() == Code::in_progress);
    REQUIRE(second->progress() == Code::in_progress);
    OwnMoves::take();
    one.sum->arm(true);
    second->arm(true);
    REQUIRE(one.sum->progress() == Code::in_progress);
    REQUIRE_FALSE(OwnMoves::take());
    one.put(one.header(), 40);
    REQUIRE(second->progress() == Code::in_progress);
    // Or the service thread was there first, and rang.
    REQUIRE((OwnMoves::take() || one.ranks.endpoint(0).data.poll(0) > 0));
    one.sum->arm(false);
    second->arm(false);
    REQUIRE(one.sum->progress() == Code::ok);
    REQUIRE(result == 42);
    second->cancel();
}

TEST_CASE("fabric: a flat exchange that is freed does not take another's sleeper with it") {
    Listener one;
    auto idle = one.ranks.bind(0, allreduce_shape(2));
    float own = 2, result = 0;
    one.sum->start(make_tag(1, 2), &own, &result);
    REQUIRE(one.sum->progress() == Code::in_progress);
    one.sum->arm(true);
    idle.reset();
    one.put(one.header(), 40);
    std::thread([&] { one.ranks.endpoint(0).transport->progress(); }).join();
    REQUIRE(one.ranks.endpoint(0).data.poll(patience_ms) > 0);
    one.sum->arm(false);
    REQUIRE(one.sum->progress() == Code::ok);
}

TEST_CASE("fabric: messages of a rank outside the group are no concern of its flat exchange") {
    FakeRanks ranks(3);
    GroupRequest pair;
    pair.comm = 5;
    pair.size = 2;
    pair.find = ranks.addresses();
    const auto group = ranks.endpoint(0).transport->intrinsics()->join(pair, patience());
    REQUIRE(group);
    pair.rank = 1;
    const auto other = ranks.endpoint(1).transport->intrinsics()->join(pair, patience());
    REQUIRE(other);
    const auto outsider = ranks.endpoint(2).transport->open({.peer = 0, .comm = 5, .lane = 0},
                                                            ranks.endpoint(0).address, patience());
    REQUIRE(outsider);
    std::unique_ptr<Receiver> receiver;
    REQUIRE(eventually({&ranks.endpoint(0), &ranks.endpoint(2)}, [&] {
        receiver = ranks.endpoint(0).sink.take({.peer = 2, .comm = 5, .lane = 0});
        return receiver != nullptr;
    }));
    const Buffer data = pattern(8, 1);
    (*outsider)->push(make_tag(1), data.data(), data.size());
    ranks.endpoint(2).turn();
    const auto mine = (*group)->bind(allreduce_shape(1)),
               theirs = (*other)->bind(allreduce_shape(1));
    REQUIRE((mine && theirs));
    std::array<float, 2> values{40, 2};
    (*mine)->start(make_tag(2), &values[0], &values[0]);
    (*theirs)->start(make_tag(2), &values[1], &values[1]);
    REQUIRE(eventually({&ranks.endpoint(0), &ranks.endpoint(1)}, [&] {
        const Poll here = (*mine)->progress(), there = (*theirs)->progress();
        return here != Code::in_progress && there != Code::in_progress;
    }));
    REQUIRE(values == std::array<float, 2>{42, 42});
}

TEST_CASE("fabric: flat refuses what it cannot serve") {
    FakeRanks ranks(2);
    auto* provider = ranks.endpoint(0).transport->intrinsics();
    REQUIRE(provider->name() == "flat");
    for (const Rank size : {1, fabric::flat_max_ranks + 1}) {
        GroupRequest group;
        group.comm = 9;
        group.size = size;
        const auto refused = provider->join(group, Deadline::after_ms(1000));
        REQUIRE_FALSE(refused.has_value());
        REQUIRE(refused.error().code == Code::unsupported);
    }
    const auto wide = ranks.group(0).bind(allreduce_shape(fabric::flat_max_bytes / 4 + 1));
    REQUIRE_FALSE(wide.has_value());
    REQUIRE(wide.error().code == Code::unsupported);
    REQUIRE_FALSE(ranks.group(0).serves(Collective::broadcast, 8));
    REQUIRE_FALSE(ranks.group(0).bind({.collective = Collective::broadcast, .count = 8}));
    REQUIRE_FALSE(ranks.group(0).bind(allreduce_shape(1, Dtype::float32, Op::sum, flat_streams)));
}

}  // namespace
}  // namespace tutti::test
