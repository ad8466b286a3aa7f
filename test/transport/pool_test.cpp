// Memory that many channels share: the arena's blocks, and the large cells that are lent.
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "transport/pooled_lane.h"

namespace tutti::test {
namespace {

constexpr std::size_t large = mapped_cell_bytes;

TEST_CASE("arena: gives blocks apart from each other, and zeroed ones again, when they come back") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    std::minstd_rand random(static_cast<uint32_t>(seed + 1));
    Arena arena;
    std::vector<Arena::Block> blocks;
    const auto stamp = [](const Arena::Block& b) {
        return static_cast<std::byte>(b.place.page | 1);
    };
    for (int turn = 0; turn < 2000; ++turn) {
        if (blocks.size() < 40 || random() % 2 == 0) {
            const std::size_t bytes = 1 + random() % 200'000;
            const auto block = arena.take(bytes, bytes);
            REQUIRE(block);
            REQUIRE(block->bytes >= bytes);
            REQUIRE(block->data == arena.segments()->at(block->place, block->bytes));
            for (std::size_t i = 0; i < block->bytes; i += 512)
                REQUIRE(block->data[i] == std::byte{0});
            std::memset(block->data, static_cast<int>(stamp(*block)), block->bytes);
            blocks.push_back(*block);
        } else {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            const Arena::Block block = blocks.back();
            blocks.pop_back();
            for (std::size_t i = 0; i < block.bytes; i += 512)
                REQUIRE(block.data[i] == stamp(block));
            arena.give(block);
        }
    }
    // Free ranges grow together: what is free is one piece again.
    const uint32_t segments = arena.segments()->count();
    for (const Arena::Block& block : blocks) arena.give(block);
    REQUIRE(arena.take(arena.segments()->bytes(segments - 1), 0));
    REQUIRE(arena.segments()->count() == segments);
}

TEST_CASE("segments: are taken in order, and say no to places that are not in them") {
    Arena arena;
    REQUIRE(arena.take(20'000'000, 0));
    REQUIRE(arena.take(20'000'000, 0));
    const SegmentTable& own = *arena.segments();
    REQUIRE(own.count() == 2);
    SegmentTable theirs;
    const auto pass = [&](uint32_t index, std::size_t bytes) {
        return theirs.take(index, UniqueFd(::dup(own.fd(index))), bytes);
    };
    REQUIRE(theirs.at({0, 0}, 1) == nullptr);
    REQUIRE_FALSE(pass(1, own.bytes(1)));
    REQUIRE_FALSE(pass(0, own.bytes(0) + page_bytes));
    REQUIRE(pass(0, own.bytes(0)));
    REQUIRE(pass(0, own.bytes(0)));  // came another way
    REQUIRE(theirs.count() == 1);
    REQUIRE(theirs.at({1, 0}, 1) == nullptr);
    REQUIRE(pass(1, own.bytes(1)));
    const auto pages = static_cast<uint32_t>(own.bytes(0) / page_bytes);
    REQUIRE(theirs.at({0, pages - 1}, page_bytes) != nullptr);
    REQUIRE(theirs.at({0, pages - 1}, page_bytes + 1) == nullptr);
    REQUIRE(theirs.at({0, pages + 1}, 0) == nullptr);
    REQUIRE(theirs.at({0, ~0U}, 1) == nullptr);
    REQUIRE(theirs.at({~0U, 0}, 1) == nullptr);
}

TEST_CASE("pool: lends one set of large cells to all channels that use it in turn") {
    const auto pool = make_pool();
    std::vector<std::unique_ptr<PooledLane>> lanes;
    for (int i = 0; i < 30; ++i) lanes.push_back(std::make_unique<PooledLane>(pool));
    REQUIRE(pool->cell_set_bytes() == 0);
    for (uint64_t round = 0; round < 3; ++round)
        for (uint64_t i = 0; i < lanes.size(); ++i)
            for (uint64_t k = 0; k < 5; ++k) {
                REQUIRE(lanes[i]->send(round * 5 + k, large, i));
                REQUIRE(lanes[i]->read(round * 5 + k, large, i));
            }
    REQUIRE(pool->cell_set_bytes() == mapped_cell_set_bytes);
}

TEST_CASE("pool: grows when messages are unread instead of making a channel wait") {
    const auto pool = make_pool();
    std::vector<std::unique_ptr<PooledLane>> lanes;
    for (int i = 0; i < 6; ++i) lanes.push_back(std::make_unique<PooledLane>(pool));
    for (uint64_t number = 0; number < mapped_cells; ++number)
        for (uint64_t i = 0; i < lanes.size(); ++i)
            REQUIRE(lanes[i]->send(number, large - number, 100 * i + number));
    for (auto& lane : lanes) REQUIRE(lane->sender->reserve(large) == nullptr);
    REQUIRE(pool->cell_set_bytes() == lanes.size() * mapped_cell_set_bytes);
    for (uint64_t i = 0; i < lanes.size(); ++i)
        for (uint64_t number = 0; number < mapped_cells; ++number)
            REQUIRE(lanes[i]->read(number, large - number, 100 * i + number));
    // All of it is there for whoever comes next.
    PooledLane next(pool);
    REQUIRE(next.send(0, large, 1));
    REQUIRE(pool->cell_set_bytes() == lanes.size() * mapped_cell_set_bytes);
}

TEST_CASE("pool: leaves a reservation that is not committed to its channel") {
    const auto pool = make_pool();
    PooledLane a(pool), b(pool);
    REQUIRE(a.send(0, large, 1));
    REQUIRE(a.read(0, large, 1));
    std::byte* const reserved = a.sender->reserve(large);
    REQUIRE(reserved != nullptr);
    std::byte* const other = b.sender->reserve(large);
    REQUIRE(
        (other + mapped_cell_set_bytes <= reserved || reserved + mapped_cell_set_bytes <= other));
    REQUIRE(a.sender->reserve(large) == reserved);
    a.sender->cancel();
    b.sender->cancel();
    PooledLane c(pool);
    REQUIRE(c.send(0, large, 1));
    REQUIRE(pool->cell_set_bytes() == 2 * mapped_cell_set_bytes);
}

TEST_CASE("pool: uses a channel's memory again when both of its ends are gone, not before") {
    const auto pool = make_pool();
    std::byte* first = nullptr;
    for (uint64_t round = 0; round < 50; ++round) {
        auto lane = std::make_unique<PooledLane>(pool);
        REQUIRE(lane->send(0, large, round));
        REQUIRE(lane->send(1, 5000, round + 1));
        REQUIRE(lane->send(2, 50, round + 2));
        lane->sender.reset();
        // Others come meanwhile, and use large cells of their own.
        PooledLane other(pool);
        REQUIRE(other.send(0, large, 77));
        REQUIRE(lane->read(0, large, round));
        REQUIRE(lane->read(1, 5000, round + 1));
        REQUIRE(lane->read(2, 50, round + 2));
        REQUIRE(other.read(0, large, 77));
        if (first == nullptr) first = other.sender->reserve(large);
    }
    REQUIRE(first != nullptr);
    REQUIRE(pool->cell_set_bytes() <= 2 * mapped_cell_set_bytes);
    // 150 channels came and went in the space of a few.
    REQUIRE(pool->arena()->segments()->count() == 1);
}

TEST_CASE(
    "pool: keeps every byte when channels on several threads take sets of cells from each other") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    constexpr uint64_t messages = 400;
    constexpr std::size_t pairs = 2, lanes_each = 3;
    const auto pool = make_pool();
    std::vector<std::unique_ptr<PooledLane>> lanes;
    for (std::size_t i = 0; i < pairs * lanes_each; ++i)
        lanes.push_back(std::make_unique<PooledLane>(pool));
    const auto bytes_of = [&](std::size_t lane, uint64_t number) {
        return (number * 7919 + lane * 104'729 + seed) % 20'000;
    };
    std::atomic<uint64_t> good{0};
    const auto deadline = Deadline::after_ms(patience_ms);
    // Each thread goes round its lanes, so that they rest while others are in use.
    const auto send_via_detour = [&](std::size_t pair, auto step) {
        std::array<uint64_t, lanes_each> numbers{};
        for (uint64_t left = messages * lanes_each; left > 0 && !deadline.passed();) {
            for (std::size_t k = 0; k < lanes_each; ++k) {
                const std::size_t lane = pair * lanes_each + k;
                for (int burst = 0; burst < 3 && numbers[k] < messages; ++burst)
                    if (step(lane, numbers[k])) ++numbers[k], --left;
            }
            std::this_thread::yield();
        }
    };
    std::vector<std::thread> threads;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        threads.emplace_back(send_via_detour, pair, [&](std::size_t lane, uint64_t number) {
            return lanes[lane]->send(number, bytes_of(lane, number), lane * messages + number);
        });
        threads.emplace_back(send_via_detour, pair, [&](std::size_t lane, uint64_t number) {
            const std::size_t bytes = bytes_of(lane, number);
            if (lanes[lane]->receiver->peek(make_tag(number), bytes).data == nullptr) return false;
            good += lanes[lane]->read(number, bytes, lane * messages + number);
            return true;
        });
    }
    for (auto& thread : threads) thread.join();
    REQUIRE(good == messages * lanes.size());
}

}  // namespace
}  // namespace tutti::test
