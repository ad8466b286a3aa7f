// Memory that a stream's operations share.
#include "engine/work_memory.h"

#include <vector>

#include "support/catch.h"

using namespace tutti;

TEST_CASE("work memory: operations share the largest, and it goes with the last of them") {
    WorkMemory memory;
    SharedBytes first = memory.at_least(1000);
    SharedBytes second = memory.at_least(500);
    REQUIRE(first == second);
    REQUIRE(memory.bytes() == 1000);
    const std::weak_ptr<std::byte[]> watched = first;
    first.reset();
    REQUIRE_FALSE(watched.expired());
    second.reset();
    REQUIRE(watched.expired());
    REQUIRE(memory.bytes() == 0);
    REQUIRE(memory.at_least(1) != nullptr);
}

TEST_CASE("work memory: what was outgrown stays with those that have it, and adds up to little") {
    WorkMemory memory;
    std::vector<SharedBytes> kept;
    std::size_t blocks = 0;
    for (std::size_t bytes = 1000; bytes <= 100'000; bytes += 1000) {
        kept.push_back(memory.at_least(bytes));
        kept.back()[bytes - 1] = std::byte{1};
        blocks += kept.size() == 1 || kept.back() != kept[kept.size() - 2];
    }
    REQUIRE(blocks <= 13);  // 1.5^12 > 100
    REQUIRE(memory.at_least(50'000) == kept.back());
}
