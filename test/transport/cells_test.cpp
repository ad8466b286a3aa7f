// Channels' own cells, and how channels that are idle lend them to others.
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "transport/posted/cells.h"

namespace tutti::test {
namespace {

constexpr std::size_t large_bytes = 256 * 1024;

struct Cells {
    Cells() {
        for (uint32_t i = 0; i < credits_per_channel; ++i) {
            taken.push_back(pool.take(large_bytes));
            REQUIRE(taken.back() != CellPool::none);
            memory.insert(pool.data(taken.back()));
        }
    }
    void give() {
        for (const int cell : std::exchange(taken, {})) pool.give(cell);
    }
    CellPool pool;
    std::vector<int> taken;
    std::set<std::byte*> memory;
};

// More than a process keeps without sharing.
std::vector<std::unique_ptr<Cells>> many() {
    std::vector<std::unique_ptr<Cells>> out;
    for (int i = 0; i < 64; ++i) out.push_back(std::make_unique<Cells>());
    return out;
}

void until_idle() {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

TEST_CASE("cells: a pool has as many as a channel has credits, and the lowest goes first") {
    CellPool pool;
    for (int i = 0; i < static_cast<int>(credits_per_channel); ++i) REQUIRE(pool.take(100) == i);
    REQUIRE(pool.take(100) == CellPool::none);
    pool.give(3);
    REQUIRE(pool.take(large_bytes) == 3);
    REQUIRE(pool.take(1) == CellPool::none);
}

TEST_CASE("cells: the process counts the memory of large ones") {
    const std::size_t before = CellPool::large_bytes_of_process();
    {
        CellPool pool;
        pool.give(pool.take(100));
        REQUIRE(CellPool::large_bytes_of_process() == before);
        const Cells cells;
        REQUIRE(CellPool::large_bytes_of_process() == before + credits_per_channel * large_bytes);
    }
    REQUIRE(CellPool::large_bytes_of_process() == before);
}

TEST_CASE("cells: channels that need large ones get those of idle channels") {
    auto all = many();
    std::set<std::byte*> memory;
    for (const auto& one : all) memory.insert(one->memory.begin(), one->memory.end());
    until_idle();
    // The pool lends none of the cells that are in use.
    const Cells fresh;
    for (std::byte* data : fresh.memory) REQUIRE(memory.count(data) == 0);
    for (const auto& one : all) one->give();
    until_idle();
    const Cells idle;
    for (std::byte* data : idle.memory) REQUIRE(memory.count(data) == 1);
    // Their owners find the others, or new ones.
    for (const auto& one : all)
        for (uint32_t i = 0; i < credits_per_channel; ++i)
            REQUIRE(one->pool.take(large_bytes) != CellPool::none);
}

TEST_CASE("cells: what one thread has taken no other gets meanwhile") {
    auto all = many();
    for (const auto& one : all) one->give();
    std::atomic<int> wrong{0};
    const auto use = [&](std::size_t first) {
        for (std::size_t i = first; i < all.size(); i += 2) {
            if (i % 16 < 2) until_idle();
            CellPool& pool = all[i]->pool;
            for (uint32_t turn = 0; turn < 2 * credits_per_channel; ++turn) {
                const int cell = pool.take(large_bytes + turn * 4096);
                if (cell == CellPool::none) {
                    ++wrong;
                    continue;
                }
                const auto mark = static_cast<int>(i + turn);
                std::memset(pool.data(cell), mark, large_bytes);
                std::this_thread::yield();
                const auto* const last = pool.data(cell) + large_bytes - 1;
                wrong += *pool.data(cell) != static_cast<std::byte>(mark) ||
                         *last != static_cast<std::byte>(mark);
                pool.give(cell);
            }
        }
    };
    std::thread other([&] { use(1); });
    use(0);
    other.join();
    REQUIRE(wrong == 0);
}

}  // namespace
}  // namespace tutti::test
