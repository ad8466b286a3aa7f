// Tests the policy that chooses how cells of large messages are written, on machines of known
// costs, and the channels that follow it.
#include "reduce/streaming_stores.h"

#include "support/catch.h"
#include "transport/pooled_lane.h"

using namespace tutti;

namespace {

constexpr std::size_t cell = 128 * 1024;
constexpr double gain = mapped_copy_gain;

// Ticks that writing a cell takes, either way.
struct Machine {
    uint64_t plain, past;
};
constexpr Machine one_cache{15'000, 30'000}, far_apart{150'000, 30'000};

// Returns the number of messages that the policy writes past the cache. Every tenth is disturbed,
// every second takes twice as long as the others.
int run(StreamingStorePolicy& policy, const Machine& machine, int messages,
        uint64_t disturbance = 0) {
    int past = 0;
    for (int i = 0; i < messages; ++i) {
        const bool way = policy.next();
        const uint64_t ticks = (way ? machine.past : machine.plain) * (i % 2 == 0 ? 1 : 2);
        policy.took(way, cell, ticks + (i % 10 == 0 ? disturbance : 0));
        past += way;
    }
    return past;
}

}  // namespace

TEST_CASE("past cache: cores that share a cache keep to it, but for a message now and then") {
    StreamingStorePolicy policy(gain);
    REQUIRE(run(policy, one_cache, 32) == 6);
    REQUIRE(run(policy, one_cache, 6100) == 100);
}

TEST_CASE("past cache: cores that share none are found out within a few messages") {
    StreamingStorePolicy policy(gain);
    REQUIRE(run(policy, far_apart, 32) >= 20);
    REQUIRE(run(policy, far_apart, 6100) == 6000);
}

TEST_CASE("past cache: who moves is followed, both ways") {
    StreamingStorePolicy policy(gain);
    run(policy, one_cache, 320);
    REQUIRE(run(policy, far_apart, 320) >= 290);
    run(policy, one_cache, 3200);
    REQUIRE_FALSE(policy.prefers());
    REQUIRE(run(policy, far_apart, 320) >= 290);
}

TEST_CASE("past cache: messages that were disturbed change nothing") {
    StreamingStorePolicy near(gain), far(gain);
    REQUIRE(run(near, one_cache, 610, 10'000'000) <= 60);
    run(far, far_apart, 64);
    REQUIRE(run(far, far_apart, 610, 10'000'000) >= 550);
}

TEST_CASE("past cache: a clock too coarse to see a message does not freeze the choice") {
    StreamingStorePolicy policy(gain);
    run(policy, {0, 0}, 64);
    REQUIRE(run(policy, far_apart, 640) >= 500);
}

TEST_CASE("past cache: a copy is the same whichever way it is written") {
    StreamingStorePolicy policy(gain);
    for (std::size_t bytes : {1ul, 63ul, 4096ul, 100'003ul})
        for (std::size_t shift : {0ul, 1ul, 40ul})
            for (int turn = 0; turn < 6; ++turn) {
                const test::Buffer from = test::pattern(bytes, bytes + shift);
                test::Buffer to(bytes + 2 * shift + 1, std::byte{7});
                policy.copy(to.data() + shift, from.data(), bytes);
                REQUIRE(std::equal(from.begin(), from.end(), to.data() + shift));
                REQUIRE(to[bytes + shift] == std::byte{7});
            }
}

TEST_CASE("past cache: a channel measures the messages that are large enough, and those alone") {
    test::PooledLane lane(test::make_pool());
    MappedSender& sender = *lane.sender;
    REQUIRE(sender.reserve(mapped_streaming_bytes - 1));
    for (const Writer writer : {Writer::copy, Writer::kernel})
        REQUIRE_FALSE(sender.streaming_policy(writer));
    sender.cancel();
    REQUIRE(sender.reserve(mapped_streaming_bytes));
    const StreamingStorePolicy *const copies = sender.streaming_policy(Writer::copy),
                                      *const kernels = sender.streaming_policy(Writer::kernel);
    REQUIRE((copies && kernels && copies != kernels));
    sender.cancel();
    REQUIRE_FALSE(sender.streaming_policy(Writer::copy));
    for (uint64_t number = 1; number <= 100; ++number) {
        const test::Buffer data = test::pattern(mapped_streaming_bytes + number, number);
        sender.push(test::make_tag(number), data.data(), data.size());
        REQUIRE_FALSE(sender.streaming_policy(Writer::copy));
        REQUIRE(lane.read(number, data.size(), number));
        sender.push(test::make_tag(number), nullptr, 0);
        REQUIRE(lane.read(number, 0, number));
    }
}

TEST_CASE(
    "past cache: a kernel's messages go past it for less, since it computes as long either way") {
    // Measured with a sum's partial results, between cores that share a cache and others.
    constexpr Machine near{9'000, 9'800}, far{36'000, 14'000};
    StreamingStorePolicy policy(mapped_kernel_gain);
    run(policy, near, 320);
    REQUIRE_FALSE(policy.prefers());
    run(policy, far, 320);
    REQUIRE(policy.prefers());
}

TEST_CASE("past cache: a writer that computes for long sees no difference and stays") {
    StreamingStorePolicy policy(gain);
    run(policy, {400'000, 380'000}, 320);
    REQUIRE_FALSE(policy.prefers());
}
