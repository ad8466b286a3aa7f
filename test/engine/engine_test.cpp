// Bound schedules in one thread: every algorithm of the catalog moves and reduces real data.
#include <cstring>
#include <numeric>
#include <random>

#include "collectives/catalog.h"
#include "engine/fabric.h"
#include "support/catch.h"
#include "support/layouts.h"
#include "support/limits.h"

using namespace tutti;
using test::Fabric;
using test::FabricRank;

namespace {

struct Case {
    const Algorithm* algorithm;
    Rank ranks;
    std::size_t count;
    uint32_t lanes = 1;
    Rank root = 0;
    bool mapped = true;
    bool in_place = false;
    std::size_t message_bytes = 4096;
    std::size_t stream_bytes = 0;
};

std::string describe(const Case& c) {
    return fmt::format(
        "{} n={} count={} lanes={} root={} mapped={} in_place={} message={} stream={}",
        c.algorithm->name, c.ranks, c.count, c.lanes, c.root, c.mapped, c.in_place, c.message_bytes,
        c.stream_bytes);
}

Tag tag_of(uint64_t sequence) {
    Tag tag;
    tag.sequence = sequence;
    return tag;
}

std::vector<std::unique_ptr<Operation>> bind_all(const Case& c, Fabric& fabric,
                                                 const Reducer& reducer, int32_t divisor) {
    std::vector<std::unique_ptr<Operation>> operations;
    for (Rank rank = 0; rank < c.ranks; ++rank) {
        FabricRank channels(fabric, rank);
        BindRequest request;
        request.collective = c.algorithm->collective;
        request.ranks = c.ranks;
        request.rank = rank;
        request.root = c.root;
        const Hosts hosts = test::mixed_hosts(c.ranks);
        request.schedule = c.algorithm->make({c.ranks, rank, c.root, c.lanes, &hosts});
        request.count = c.count;
        request.reducer = reducer;
        request.divisor = divisor;
        request.message_bytes = c.message_bytes;
        request.stream_bytes = c.stream_bytes;
        auto bound = bind(std::move(request), channels);
        REQUIRE(bound);
        operations.push_back(std::move(*bound));
    }
    return operations;
}

// Small integers in floats: sums are exact whatever the order, so results can be compared exactly.
float input_of(Rank rank, std::size_t i) {
    return static_cast<float>((static_cast<std::size_t>(rank) * 7 + i * 3) % 11);
}

void run_allreduce(const Case& c) {
    INFO(describe(c));
    Fabric fabric(c.mapped);
    const auto operations = bind_all(c, fabric, *Reducer::make(Dtype::float32, Op::sum), 1);
    for (uint64_t round = 1; round <= 2; ++round) {
        std::vector<std::vector<float>> in(static_cast<std::size_t>(c.ranks)), out = in;
        for (Rank r = 0; r < c.ranks; ++r) {
            auto& mine = in[static_cast<std::size_t>(r)];
            mine.resize(c.count);
            for (std::size_t i = 0; i < c.count; ++i) mine[i] = input_of(r, i + round);
            out[static_cast<std::size_t>(r)].assign(c.count, -1.0f);
        }
        for (std::size_t r = 0; r < in.size(); ++r)
            operations[r]->start(tag_of(round), in[r].data(),
                                 c.in_place ? in[r].data() : out[r].data());
        REQUIRE(test::drive_all(operations) == Code::ok);
        std::vector<float> expected(c.count, 0.0f);
        for (Rank r = 0; r < c.ranks; ++r)
            for (std::size_t i = 0; i < c.count; ++i) expected[i] += input_of(r, i + round);
        for (std::size_t r = 0; r < in.size(); ++r) {
            INFO("rank " << r);
            REQUIRE((c.in_place ? in[r] : out[r]) == expected);
        }
    }
}

void run_broadcast(const Case& c) {
    INFO(describe(c));
    Fabric fabric(c.mapped);
    const auto operations = bind_all(c, fabric, Reducer::mover(4), 1);
    std::vector<std::vector<uint32_t>> buffers(static_cast<std::size_t>(c.ranks));
    for (std::size_t r = 0; r < buffers.size(); ++r) {
        buffers[r].resize(c.count);
        std::iota(buffers[r].begin(), buffers[r].end(), static_cast<uint32_t>(r * 1000));
    }
    const auto expected = buffers[static_cast<std::size_t>(c.root)];
    for (std::size_t r = 0; r < buffers.size(); ++r)
        operations[r]->start(tag_of(1), buffers[r].data(), buffers[r].data());
    REQUIRE(test::drive_all(operations) == Code::ok);
    for (const auto& buffer : buffers) REQUIRE(buffer == expected);
}

}  // namespace

TEST_CASE("bound schedule: allreduce of every algorithm sums exactly, on both data paths") {
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::allreduce) continue;
        for (Rank n : {1, 2, 3, 4, 5, 7, 8, 13}) {
            if (n > test::max_ranks()) continue;
            for (std::size_t count : {0ul, 1ul, 2ul, 17ul, 1000ul, 20011ul})
                for (uint32_t lanes : {1u, 2u, 3u})
                    for (bool mapped : {true, false})
                        for (bool in_place : {false, true})
                            run_allreduce({&a, n, count, lanes, 0, mapped, in_place, 4096});
        }
    }
}

// Messages of 32 KiB lie in large cells, of which every fifth is written the other way, and results
// of any size go past the cache where they may.
TEST_CASE("bound schedule: allreduce is right past the cache") {
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::allreduce) continue;
        for (Rank n : {2, 3, 4, 7}) {
            if (n > test::max_ranks()) continue;
            for (uint32_t lanes : {1u, 2u})
                for (bool in_place : {false, true})
                    for (std::size_t stream_bytes : {0u, 1u})
                        run_allreduce(
                            {&a, n, 200'003, lanes, 0, true, in_place, 32 * 1024, stream_bytes});
        }
    }
}

TEST_CASE("bound schedule: allreduce is right around tile boundaries") {
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::allreduce) continue;
        for (Rank n : {2, 3, 4}) {
            const Hosts hosts = test::mixed_hosts(n);
            const Schedule s = a.make({n, 0, 0, 1, &hosts});
            const std::size_t tile =
                cut_for({.ranks = n}, s, *Reducer::make(Dtype::float32, Op::sum), 1024)
                    .tile_elements;
            for (std::size_t tiles : {1, 2, 3})
                for (int off : {-1, 0, 1})
                    run_allreduce({&a, n, tile * tiles + static_cast<std::size_t>(off), 1, 0, true,
                                   false, 1024});
        }
    }
}

TEST_CASE("bound schedule: broadcast of every algorithm reaches everyone from every root") {
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::broadcast) continue;
        for (Rank n : {1, 2, 3, 4, 6, 9})
            for (Rank root = 0; root < n; ++root)
                for (std::size_t count : {0ul, 1ul, 5000ul})
                    for (bool mapped : {true, false})
                        run_broadcast({&a, n, count, 2, root, mapped, true, 2048});
    }
}

TEST_CASE("bound schedule: nobody leaves a barrier before everyone has come") {
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::barrier) continue;
        for (Rank n : {2, 3, 5, 8}) {
            for (Rank late = 0; late < n; ++late) {
                INFO(a.name << " n=" << n << " late=" << late);
                Fabric fabric(true);
                const auto operations = bind_all({&a, n, 0}, fabric, Reducer::mover(1), 1);
                for (Rank r = 0; r < n; ++r)
                    if (r != late)
                        operations[static_cast<std::size_t>(r)]->start(tag_of(1), nullptr, nullptr);
                for (int pass = 0; pass < 100; ++pass)
                    for (Rank r = 0; r < n; ++r)
                        if (r != late)
                            REQUIRE(operations[static_cast<std::size_t>(r)]->progress() ==
                                    Code::in_progress);
                operations[static_cast<std::size_t>(late)]->start(tag_of(1), nullptr, nullptr);
                REQUIRE(test::drive_all(operations) == Code::ok);
            }
        }
    }
}

TEST_CASE("bound schedule: 16-bit sums are rounded once") {
    // 1 + 2^-9 + 2^-9 …: each addend alone is lost in bfloat16's 8 bits, their sum is not.
    const auto bf16 = [](float value) {
        uint32_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        return static_cast<uint16_t>(bits >> 16);
    };
    for (const Algorithm& a : algorithms()) {
        if (a.collective != Collective::allreduce) continue;
        for (const auto& [n, count] : {std::pair{2, 5000}, {3, 5000}, {4, 64}, {5, 64}, {8, 64}}) {
            INFO(a.name << " n=" << n);
            Fabric fabric(true);
            const Case c{&a, n, static_cast<std::size_t>(count)};
            const auto operations =
                bind_all(c, fabric, *Reducer::make(Dtype::bfloat16, Op::sum), 1);
            std::vector<std::vector<uint16_t>> data(static_cast<std::size_t>(n));
            float sum = 0;
            for (std::size_t r = 0; r < data.size(); ++r) {
                const float value = r == 0 ? 1.0f : 1.0f / 512;
                sum += value;
                data[r].assign(c.count, bf16(value));
                operations[r]->start(tag_of(1), data[r].data(), data[r].data());
            }
            REQUIRE(test::drive_all(operations) == Code::ok);
            uint32_t bits = 0;
            std::memcpy(&bits, &sum, sizeof bits);
            const auto rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
            for (const auto& result : data)
                for (uint16_t value : result) REQUIRE(value == rounded);
        }
    }
}

TEST_CASE("layout: 16-bit floats fill their messages where no partial sums are sent") {
    const auto tile_bytes = [](const Algorithm& a, Rank n, Dtype dtype) {
        const Hosts hosts = test::mixed_hosts(n);
        const Schedule s = a.make({n, 0, 0, 1, &hosts});
        return cut_for({.collective = a.collective, .ranks = n}, s, *Reducer::make(dtype, Op::sum),
                       128 * 1024)
                   .tile_elements *
               dtype_bytes(dtype);
    };
    for (const Algorithm& a : algorithms()) {
        if (!traits_of(a.collective).reduces) continue;
        INFO(collective_name(a.collective) << " " << a.name);
        for (Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
            REQUIRE(tile_bytes(a, 2, dtype) == tile_bytes(a, 2, Dtype::float32));
            const std::size_t part = a.name == "direct" ? 1 : 2;
            REQUIRE(tile_bytes(a, 8, dtype) == tile_bytes(a, 8, Dtype::float32) / part);
        }
    }
}

TEST_CASE("bound schedule: avg divides once, at the end") {
    const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
    for (Rank n : {1, 2, 3, 6}) {
        Fabric fabric(true);
        const Case c{ring, n, 100};
        const auto operations = bind_all(c, fabric, *Reducer::make(Dtype::float64, Op::avg), n);
        std::vector<std::vector<double>> data;
        for (Rank r = 0; r < n; ++r) data.emplace_back(100, static_cast<double>(r + 1));
        for (std::size_t r = 0; r < data.size(); ++r)
            operations[r]->start(tag_of(1), data[r].data(), data[r].data());
        REQUIRE(test::drive_all(operations) == Code::ok);
        for (const auto& result : data)
            for (double value : result) REQUIRE(value == (n + 1) / 2.0);
    }
}

TEST_CASE("bound schedule: a message of another call is a mismatch that names its sender") {
    const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
    Fabric fabric(true);
    const auto operations =
        bind_all({ring, 2, 10}, fabric, *Reducer::make(Dtype::float32, Op::sum), 1);
    std::vector<float> a(10), b(10);
    Tag other = tag_of(1);
    other.count = 99;
    operations[0]->start(tag_of(1), a.data(), a.data());
    operations[1]->start(other, b.data(), b.data());
    const Poll poll = test::drive_all(operations);
    REQUIRE(poll == Code::mismatch);
    REQUIRE(poll.failure->error.code == Code::mismatch);
    // Either rank may be the first that sees it.
    const Rank sender = poll.failure->error.rank;
    REQUIRE((sender == 0 || sender == 1));
    REQUIRE(poll.failure->got.count == (sender == 1 ? other : tag_of(1)).count);
}

TEST_CASE("bound schedule: a new epoch drops what a failed one left in the channels") {
    const Algorithm* ring = find_algorithm(Collective::allreduce, "ring");
    Fabric fabric(true);
    const auto operations =
        bind_all({ring, 2, 10}, fabric, *Reducer::make(Dtype::float32, Op::sum), 1);
    std::vector<float> a(10, 1.0f), b(10, 2.0f);
    operations[0]->start(tag_of(5), a.data(), a.data());
    REQUIRE(operations[0]->progress() == Code::in_progress);
    operations[0]->cancel();

    const uint64_t next = uint64_t{1} << Tag::epoch_shift | 6;
    a.assign(10, 1.0f);
    operations[0]->start(tag_of(next), a.data(), a.data());
    operations[1]->start(tag_of(next), b.data(), b.data());
    REQUIRE(test::drive_all(operations) == Code::ok);
    REQUIRE(a == std::vector<float>(10, 3.0f));
    REQUIRE(b == a);
}

namespace {

/// To a peer that may be lost: takes every push, and says what became of them.
class DoubtfulSender final : public Sender {
public:
    std::byte* reserve(std::size_t) override { return nullptr; }
    void commit(const Tag&, std::size_t) override {}
    bool can_push() override { return true; }
    void push(const Tag&, const std::byte*, std::size_t) override {}
    bool drained() override { return free; }
    bool all_sent() override { return sent; }
    void cancel() override {}
    void arm(bool) override {}
    Code health() const override { return free && !sent ? Code::peer_lost : Code::ok; }

    bool free = false, sent = false;
};

class DoubtfulPeer final : public ChannelProvider {
public:
    DoubtfulPeer() { capabilities_.max_message_bytes = 4096; }
    Result<OpenSender> sender(Rank, uint16_t, Deadline) override {
        return OpenSender{&channel, &capabilities_};
    }
    ReceiverSlot* receiver(Rank, uint16_t) override { return &slot_; }

    DoubtfulSender channel;

private:
    Capabilities capabilities_;
    ReceiverSlot slot_;
};

}  // namespace

TEST_CASE("bound schedule: pieces that are kept are sent on as well") {
    // From rank to rank, and on the way put together from what lies apart: scratch slots.
    constexpr Rank ranks = 3;
    constexpr std::size_t count = 3001;
    for (const bool mapped : {true, false}) {
        Fabric fabric(mapped);
        std::vector<std::unique_ptr<Operation>> operations;
        for (Rank rank = 0; rank < ranks; ++rank) {
            FabricRank channels(fabric, rank);
            BindRequest request;
            request.collective = Collective::broadcast;
            request.ranks = ranks;
            request.rank = rank;
            request.schedule.chunks = request.schedule.longest_run = 2;
            Step step{.local = Region::input(0), .send = 1, .chunks = 2};
            if (rank == 2) step = {.recv = 1, .out = Region::output(0), .chunks = 2};
            Lane lane{step};
            if (rank == 1) {
                request.schedule.scratch_slots = 2;
                const Region aside = Region::scratch(0, 0);
                lane = {{.recv = 0, .out = aside, .send = 2, .chunks = 2},
                        {.local = aside, .out = Region::output(0), .chunks = 2}};
            }
            request.schedule.lanes.push_back(lane);
            request.count = count;
            request.reducer = Reducer::mover(4);
            request.message_bytes = 4096;
            auto bound = bind(std::move(request), channels);
            REQUIRE(bound);
            operations.push_back(std::move(*bound));
        }
        std::vector<std::vector<uint32_t>> buffers(ranks, std::vector<uint32_t>(count, 0));
        std::iota(buffers[0].begin(), buffers[0].end(), 1U);
        for (std::size_t r = 0; r < buffers.size(); ++r)
            operations[r]->start(tag_of(1), buffers[r].data(), buffers[r].data());
        REQUIRE(test::drive_all(operations) == Code::ok);
        CHECK(buffers[1] == buffers[0]);
        CHECK(buffers[2] == buffers[0]);
    }
}

namespace {

/// Notes how messages were written.
class NotingSender final : public Sender {
public:
    explicit NotingSender(Sender& to) : to_(to) {}
    std::byte* reserve(std::size_t bytes) override { return to_.reserve(bytes); }
    StreamingStorePolicy* streaming_policy(Writer writer) override {
        ++(writer == Writer::copy ? copies : kernels);
        return to_.streaming_policy(writer);
    }
    void commit(const Tag& tag, std::size_t bytes) override { to_.commit(tag, bytes); }
    bool can_push() override { return to_.can_push(); }
    void push(const Tag& tag, const std::byte* data, std::size_t bytes) override {
        to_.push(tag, data, bytes);
    }
    bool drained() override { return to_.drained(); }
    bool all_sent() override { return to_.all_sent(); }
    void cancel() override { to_.cancel(); }
    void arm(bool on) override { to_.arm(on); }
    Code health() const override { return to_.health(); }

    int copies = 0, kernels = 0;

private:
    Sender& to_;
};

class NotingRank final : public ChannelProvider {
public:
    NotingRank(Fabric& fabric, Rank rank) : fabric_(fabric), rank_(rank) {}
    Result<OpenSender> sender(Rank peer, uint16_t lane, Deadline) override {
        if (!noting)
            noting = std::make_unique<NotingSender>(*fabric_.link(rank_, peer, lane).sender);
        return OpenSender{noting.get(), &fabric_.capabilities()};
    }
    ReceiverSlot* receiver(Rank peer, uint16_t lane) override {
        return &fabric_.link(peer, rank_, lane).slot;
    }

    std::unique_ptr<NotingSender> noting;

private:
    Fabric& fabric_;
    const Rank rank_;
};

}  // namespace

TEST_CASE("bound schedule: of a ring's messages only partial sums are a kernel's to write") {
    constexpr Rank ranks = 3;
    Fabric fabric(true);
    std::vector<std::unique_ptr<NotingRank>> channels;
    std::vector<std::unique_ptr<Operation>> operations;
    for (Rank rank = 0; rank < ranks; ++rank) {
        channels.push_back(std::make_unique<NotingRank>(fabric, rank));
        BindRequest request;
        request.collective = Collective::allreduce;
        request.ranks = ranks;
        request.rank = rank;
        request.schedule = find_algorithm(Collective::allreduce, "ring")->make({ranks, rank, 0, 1});
        request.count = 30'000;
        request.reducer = *Reducer::make(Dtype::float32, Op::sum);
        request.message_bytes = 4096;
        auto bound = bind(std::move(request), *channels.back());
        REQUIRE(bound);
        operations.push_back(std::move(*bound));
    }
    std::vector<std::vector<float>> values(ranks, std::vector<float>(30'000, 1.0f));
    for (std::size_t r = 0; r < values.size(); ++r)
        operations[r]->start(tag_of(1), values[r].data(), values[r].data());
    REQUIRE(test::drive_all(operations) == Code::ok);
    for (const auto& rank : channels) {
        // The input that it begins with, a result of its own, and one that it passes on.
        CHECK(rank->noting->kernels > 0);
        CHECK(rank->noting->copies == 3 * rank->noting->kernels);
    }
    for (const auto& result : values) CHECK(result == std::vector<float>(30'000, 3.0f));
}

TEST_CASE("bound schedule: a send to a peer that is gone is over once its memory is free") {
    DoubtfulPeer peer;
    BindRequest request;
    request.collective = Collective::broadcast;
    request.ranks = 2;
    request.schedule = find_algorithm(Collective::broadcast, "binomial")->make({2, 0, 0, 1});
    request.count = 100;
    request.reducer = Reducer::mover(4);
    auto bound = bind(std::move(request), peer);
    REQUIRE(bound);
    Operation& root = **bound;
    const std::vector<uint32_t> values(100, 7);
    root.start(tag_of(1), values.data(), nullptr);
    CHECK(root.progress() == Code::in_progress);
    peer.channel.free = true;
    SECTION("it has taken all") {
        peer.channel.sent = true;
        CHECK(root.progress() == Code::ok);
        CHECK_FALSE(root.untaken());
    }
    SECTION("it has not, and is in no later operation") {
        CHECK(root.progress() == Code::ok);
        CHECK(root.untaken());
    }
}
