// examples/imagenet_like: who reads which image.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "imagenet_fixture.h"
#include "imagenet_like/reader.h"
#include "support/catch.h"

using namespace imagenet_like;
using namespace tutti::test;

namespace {

/// The pixels of each entry as all replicas read them in one epoch, step by step.
using Seen = std::vector<std::map<uint32_t, std::vector<float>>>;

Seen read_all(const RecordSet& set, std::size_t ranks, std::size_t devices, uint64_t epoch,
              std::size_t batch) {
    Seen seen((set.size() + batch - 1) / batch);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        Reader reader(set, {.batch = batch,
                            .replicas = ranks * devices,
                            .first = rank * devices,
                            .devices = devices,
                            .seed = 5,
                            .begin_epoch = epoch,
                            .end_epoch = epoch + 2});
        REQUIRE(reader.steps_per_epoch() == seen.size());
        for (auto& of_step : seen)
            for (const Batch& own : reader.next())
                for (std::size_t i = 0; i < own.entries.size(); ++i) {
                    const uint32_t entry = own.entries[i];
                    REQUIRE(own.labels[i] == entry % 10);
                    const auto first = own.pixels.begin() + static_cast<std::ptrdiff_t>(64 * i);
                    REQUIRE(of_step.emplace(entry, std::vector<float>(first, first + 64)).second);
                }
    }
    return seen;
}

}  // namespace

TEST_CASE("reader: an epoch's order is each entry once, and follows from seed and epoch") {
    for (const std::size_t entries : {0, 1, 2, 97, 1000}) {
        std::vector<uint32_t> order = epoch_order(entries, 1, 4);
        REQUIRE(order == epoch_order(entries, 1, 4));
        if (entries > 50) {
            REQUIRE(order != epoch_order(entries, 1, 5));
            REQUIRE(order != epoch_order(entries, 2, 4));
        }
        std::sort(order.begin(), order.end());
        std::vector<uint32_t> all(entries);
        std::iota(all.begin(), all.end(), 0U);
        REQUIRE(order == all);
    }
}

TEST_CASE("reader: shares of a list have each item once, and differ by one at most") {
    for (std::size_t count = 0; count < 70; ++count) {
        const std::vector<uint32_t> list = epoch_order(count, 1, 1);
        for (std::size_t parts = 1; parts < 10; ++parts) {
            std::vector<uint32_t> joined;
            for (std::size_t part = 0; part < parts; ++part) {
                const auto share = share_of(list, part, parts);
                REQUIRE(share.size() >= count / parts);
                REQUIRE(share.size() <= (count + parts - 1) / parts);
                joined.insert(joined.end(), share.begin(), share.end());
            }
            REQUIRE(joined == list);
        }
    }
}

TEST_CASE("reader: every image is read exactly once an epoch, in the same steps, by any replicas") {
    const Folder folder;
    pack_random(folder, {30, 23});
    const RecordSet set(folder.file(""), "train");
    for (const std::size_t batch : {1, 7, 16, 53, 64}) {
        const Seen alone = read_all(set, 1, 1, 3, batch);
        std::size_t images = 0;
        for (const auto& of_step : alone) images += of_step.size();
        REQUIRE(images == set.size());
        std::set<uint32_t> entries;
        for (const auto& of_step : alone)
            for (const auto& [entry, pixels] : of_step) entries.insert(entry);
        REQUIRE(entries.size() == set.size());
        // The same images in each step, moved in the same way.
        REQUIRE(read_all(set, 1, 3, 3, batch) == alone);
        REQUIRE(read_all(set, 2, 2, 3, batch) == alone);
        REQUIRE(read_all(set, 5, 1, 3, batch) == alone);
        if (batch < 53) REQUIRE(read_all(set, 1, 1, 4, batch) != alone);
    }
}

TEST_CASE("reader: a reader that begins later reads what the first comes to") {
    const Folder folder;
    pack_random(folder, {20});
    const RecordSet set(folder.file(""), "train");
    ReaderOptions options{.batch = 6, .begin_epoch = 0, .end_epoch = 4, .steps_ahead = 2};
    Reader from_start(set, options);
    for (std::size_t i = 0; i < 2 * from_start.steps_per_epoch(); ++i) from_start.next();
    options.begin_epoch = 2;
    Reader later(set, options);
    for (std::size_t i = 0; i < 2 * later.steps_per_epoch(); ++i) {
        const Step expected = from_start.next();
        REQUIRE(later.next().at(0).entries == expected.at(0).entries);
    }
    REQUIRE_THROWS_AS(later.next(), std::logic_error);
}

TEST_CASE("reader: one that nobody reads to its end goes away") {
    const Folder folder;
    pack_random(folder, {40});
    const RecordSet set(folder.file(""), "train");
    for (int taken = 0; taken < 5; ++taken) {
        Reader reader(set, {.batch = 4, .end_epoch = 1000, .steps_ahead = 2});
        for (int i = 0; i < taken; ++i) reader.next();
    }
}
