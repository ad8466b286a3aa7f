// Conformance suite for every kind of store.
#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "net/serving.h"
#include "store_fixture.h"

using namespace tutti;

namespace {

template <typename Body>
void for_each_store(Body body) {
    for (const char* kind : store_maker_kinds) {
        INFO("store kind " << kind);
        const auto maker = make_store_maker(kind);
        body(*maker);
    }
}

}  // namespace

TEST_CASE("stores: the conformance suite knows every kind in the catalog") {
    std::set<std::string> known(std::begin(store_maker_kinds), std::end(store_maker_kinds));
    for (const StoreKind& kind : store_kinds()) CHECK(known.contains(std::string(kind.scheme)));
}

TEST_CASE("stores: what one rank sets another gets, and a second set replaces it") {
    for_each_store([](StoreMaker& maker) {
        const auto a = maker.open("job"), b = maker.open("job");
        REQUIRE(a->set("key", "value", soon()));
        CHECK(b->get("key", soon()).value() == "value");
        REQUIRE(b->set("key", "", soon()));
        CHECK(a->get("key", soon()).value() == "");
        CHECK(!a->describe().empty());
    });
}

TEST_CASE("stores: get waits until another thread sets the key, also through the same client") {
    for_each_store([](StoreMaker& maker) {
        const auto a = maker.open("job"), b = maker.open("job");
        for (Store* setter : {b.get(), a.get()}) {
            const std::string key = setter == a.get() ? "own" : "other";
            std::thread late([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(80));
                CHECK(setter->set(key, "late", soon()));
            });
            const auto value = a->get(key, soon());
            late.join();
            REQUIRE(value);
            CHECK(*value == "late");
        }
    });
}

TEST_CASE(
    "stores: a get that times out says which key, which store and how long, and harms nothing") {
    for_each_store([](StoreMaker& maker) {
        const auto store = maker.open("job");
        const auto value = store->get("rank/7/address", Deadline::after_ms(60));
        REQUIRE(!value);
        CHECK(value.error().code == Code::timeout);
        CHECK(contains(value.error().message, "\"rank/7/address\""));
        CHECK(contains(value.error().message, store->describe()));
        const auto within = value.error().message.find("within ");
        REQUIRE(within != std::string::npos);
        CHECK(std::stoi(value.error().message.substr(within + 7)) >= 60);
        REQUIRE(store->set("rank/7/address", "now", soon()));
        CHECK(store->get("rank/7/address", soon()).value() == "now");
        CHECK(store->set("another", "x", soon()));
        CHECK(store->get("another", soon()).value() == "x");
    });
}

TEST_CASE("stores: a get gives up when what it is for is over") {
    for_each_store([](StoreMaker& maker) {
        const auto store = maker.open("job");
        std::atomic<bool> over{false};
        const std::atomic<bool> never{false};
        std::thread ends([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            over = true;
        });
        const int64_t start_ns = now_ns();
        const net::CancelWaitsWhen outside(over), inside(never);
        const auto value = store->get("nobody sets this", Deadline::after_ms(60'000));
        ends.join();
        REQUIRE(!value);
        CHECK(value.error().code == Code::timeout);
        CHECK(now_ns() - start_ns < 30'000'000'000);
    });
}

TEST_CASE("stores: a look tells what is there and what is not, at once") {
    for_each_store([](StoreMaker& maker) {
        const auto a = maker.open("job"), b = maker.open("job");
        const int64_t start_ns = now_ns();
        for (int round = 0; round < 3; ++round) {
            const auto nothing = b->try_get("key", soon());
            REQUIRE(nothing);
            CHECK_FALSE(*nothing);
            REQUIRE(a->set("key", "", soon()));
            CHECK(b->try_get("key", soon()).value() == "");
            REQUIRE(a->set("key", "value", soon()));
            CHECK(b->try_get("key", soon()).value() == "value");
            REQUIRE(a->remove("key", soon()));
        }
        CHECK(now_ns() - start_ns < 20'000'000'000);  // a look that waits takes as long
    });
}

TEST_CASE("stores: a claim is won once, the loser learns by whom, removing frees it") {
    for_each_store([](StoreMaker& maker) {
        const auto a = maker.open("job"), b = maker.open("job");
        std::string existing = "untouched";
        for (int round = 0; round < 3; ++round) {
            INFO("round " << round);
            REQUIRE(a->claim("rank/0", "a", existing, soon()).value());
            CHECK(b->claim("rank/0", "b", existing, soon()).value() == false);
            CHECK(existing == "a");
            CHECK(a->claim("rank/0", "a", existing, soon()).value() == false);
            CHECK(b->get("rank/0", soon()).value() == "a");
            REQUIRE((round == 1 ? b : a)->remove("rank/0", soon()));
            const auto gone = b->get("rank/0", Deadline::after_ms(20));
            REQUIRE(!gone);
            CHECK(gone.error().code == Code::timeout);
        }
        REQUIRE(a->set("plain", "set", soon()));
        CHECK(b->claim("plain", "claimed", existing, soon()).value() == false);
        CHECK(existing == "set");
        REQUIRE(a->remove("plain", soon()));
        CHECK(b->claim("plain", "claimed", existing, soon()).value());
        REQUIRE(b->set("plain", "owner's new value", soon()));
        REQUIRE(b->remove("plain", soon()));
        CHECK(a->claim("plain", "again", existing, soon()).value());
        CHECK(a->remove("never there", soon()));
    });
}

TEST_CASE("stores: of concurrent claims exactly one wins and all others see its value") {
    for_each_store([](StoreMaker& maker) {
        constexpr int claimers = 8;
        std::vector<std::unique_ptr<Store>> stores;
        for (int i = 0; i < claimers; ++i) stores.push_back(maker.open("job"));
        for (int round = 0; round < 5; ++round) {
            const std::string key = "claim/" + std::to_string(round);
            std::atomic<int> winners{0}, failures{0}, ready{0};
            std::string seen[claimers];
            std::vector<std::thread> threads;
            for (int i = 0; i < claimers; ++i)
                threads.emplace_back([&, i] {
                    ++ready;
                    while (ready < claimers) std::this_thread::yield();
                    seen[i] = "claimer " + std::to_string(i);
                    const auto won =
                        stores[static_cast<std::size_t>(i)]->claim(key, seen[i], seen[i], soon());
                    if (!won) ++failures;
                    if (won && *won) ++winners;
                });
            for (std::thread& t : threads) t.join();
            CHECK(failures == 0);
            CHECK(winners == 1);
            for (const std::string& value : seen) CHECK(value == seen[0]);
        }
    });
}

TEST_CASE("stores: large and binary values come back whole while others are written") {
    const unsigned seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    for_each_store([&](StoreMaker& maker) {
        const auto a = maker.open("job"), b = maker.open("job");
        std::string large(512 * 1024, '\0');
        for (char& c : large) c = static_cast<char>(random());
        REQUIRE(a->set("large", large, soon()));
        CHECK(b->get("large", soon()).value() == large);
        // Readers see the old or the new value, never a part of one.
        std::atomic<bool> stop{false};
        std::thread writer([&] {
            for (char c = 'a'; c <= 'z'; ++c)
                CHECK(a->set("changing", std::string(200'000, c), soon()));
            stop = true;
        });
        int torn = 0;
        while (!stop) {
            const std::string value = b->get("changing", soon()).value_or("");
            if (value != std::string(200'000, value.empty() ? '-' : value[0])) ++torn;
        }
        writer.join();
        CHECK(torn == 0);
    });
}

TEST_CASE("stores: keys of odd characters and lengths are all different") {
    for_each_store([](StoreMaker& maker) {
        const auto a = maker.open("job"), b = maker.open("job");
        std::vector<std::string> keys = {"a",  "A",   "a/b",     "a//b",      "a%2Fb", "../../up",
                                         "..", ".",   ".hidden", "/absolute", "a b",   "tab\there",
                                         "ü€", "a~b", "%",       "a\nb",      "*?",    "-rf"};
        keys.push_back(std::string(300, 'k'));
        keys.push_back(std::string(299, 'k') + "l");
        keys.push_back(std::string(2000, '/'));
        for (const std::string& key : keys) REQUIRE(a->set(key, "value of " + key, soon()));
        for (const std::string& key : keys) {
            INFO(key);
            CHECK(b->get(key, soon()).value_or("missing") == "value of " + key);
        }
    });
}

TEST_CASE("stores: jobs do not see each other's keys") {
    for_each_store([](StoreMaker& maker) {
        const auto one = maker.open("one"), two = maker.open("two/../one");
        REQUIRE(one->set("key", "of one", soon()));
        CHECK(!two->get("key", Deadline::after_ms(20)));
    });
}
