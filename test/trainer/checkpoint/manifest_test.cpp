// Tests how rank 0 merges the lists that other ranks send: it trusts nothing in them.
#include <limits>
#include <nlohmann/json.hpp>

#include "support/catch.h"
#include "trainer/checkpoint/manifest.h"

using namespace tutti::trainer::checkpoint;
using Json = nlohmann::json;

namespace {

Entries entries() {
    static std::vector<std::byte> memory(64);
    Entries all;
    REQUIRE(add_part(all, "bias", {.dtype = TUTTI_FLOAT32, .shape = {2}, .parts = {}},
                     {.rows = 2, .data = memory.data()}));
    REQUIRE(add_part(all, "rows",
                     {.dtype = TUTTI_FLOAT32, .shape = {3, 2}, .sharded = true, .parts = {}},
                     {.first_row = 1, .rows = 2, .data = memory.data()}));
    return all;
}

/// The text comes from rank 2; ranks 0 and 1 send correct ones.
void expect_refused(const std::string& text, std::initializer_list<std::string> words) {
    const std::string good = write_manifest(entries());
    const auto merged = merge_manifests({good, good, text});
    INFO(text);
    REQUIRE(!merged);
    INFO(merged.error().message);
    REQUIRE(merged.error().rank == 2);
    REQUIRE(merged.error().message.find("rank 2") != std::string::npos);
    for (const std::string& word : words) {
        INFO(word);
        REQUIRE(merged.error().message.find(word) != std::string::npos);
    }
}

}  // namespace

TEST_CASE("manifest: one of another rank without a key, or with another type, names both") {
    const Json good = Json::parse(write_manifest(entries()));
    REQUIRE(merge_manifests({good.dump(), good.dump()}));
    for (const char* entry : {"bias", "rows"})
        for (const char* key : {"dtype", "shape", "sharded", "parts"}) {
            Json less = good;
            less[entry].erase(key);
            expect_refused(less.dump(), {fmt::format("entry '{}' has no '{}'", entry, key)});
            for (const Json& wrong : {Json(nullptr), Json("text"), Json(1.5), Json{{"a", 1}},
                                      Json::array({"a"}), Json::array({Json::array({1, 2})})}) {
                Json other = good;
                other[entry][key] = wrong;
                expect_refused(other.dump(),
                               {fmt::format("'{}' of entry '{}' is not", key, entry)});
            }
        }
    expect_refused("", {"not a JSON object"});
    expect_refused("[1, 2]", {"not a JSON object"});
    expect_refused(good.dump().substr(0, 40), {"not a JSON object"});
    expect_refused(R"({"bias": 7})", {"entry 'bias' is not an object"});
}

TEST_CASE("manifest: rows and shapes of another rank that cannot be are refused") {
    Json json = Json::parse(write_manifest(entries()));
    for (const Json& part : {Json{-1, 2, 0}, Json{0, -2, 0}, Json{4, 0, 0}, Json{2, 2, 0},
                             Json{1, std::numeric_limits<int64_t>::max(), 0},
                             Json{1, std::numeric_limits<uint64_t>::max(), 0}}) {
        Json other = json;
        other["rows"]["parts"][0] = part;
        expect_refused(other.dump(), {"'parts' of entry 'rows'"});
    }
    for (const Json& shape : {Json{-3, 2}, Json{1ull << 62, 1ull << 62}}) {
        Json other = json;
        other["rows"]["shape"] = shape;
        expect_refused(other.dump(), {"entry 'rows'", "shape"});
    }
    json["bias"]["dtype"] = 99;
    expect_refused(json.dump(), {"entry 'bias'", "unknown dtype 99"});
}
