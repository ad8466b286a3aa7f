#include <atomic>
#include <thread>

#include "store_fixture.h"

using namespace tutti;

TEST_CASE("open store: without a URL it says what to set, with examples") {
    const auto store = open_store({});
    REQUIRE(!store);
    CHECK(store.error().code == Code::invalid);
    CHECK(contains(store.error().advice, "TUTTI_STORE"));
    for (const StoreKind& kind : store_kinds())
        CHECK(contains(store.error().advice, kind.example));
}

TEST_CASE("open store: an unknown scheme lists the ones that are built") {
    for (const char* url : {"redis://host:1", "tcp", "127.0.0.1:29500", "://", "TCP://h:1"}) {
        INFO(url);
        const auto store = open_store({.url = url});
        REQUIRE(!store);
        CHECK(store.error().code == Code::invalid);
        CHECK(contains(store.error().message, url));
        for (const StoreKind& kind : store_kinds())
            CHECK(contains(store.error().advice, kind.example));
    }
}

TEST_CASE("open store: an address that makes no sense is refused by name") {
    for (const char* url : {"tcp://", "tcp://host", "tcp://host:99999", "tcp://::1:5",
                            "tcp://127.0.0.1:0", "file://", "file://relative/path"}) {
        INFO(url);
        const auto store = open_store({.url = url, .deadline = soon()});
        REQUIRE(!store);
        CHECK(store.error().code == Code::invalid);
        CHECK(contains(store.error().message, url));
    }
}

TEST_CASE("callback store: a failing callback is named, with the key") {
    const auto fails = [](void*, const char*, const void*, std::size_t) { return 5; };
    StoreCallbacks callbacks{
        .set = fails,
        .get = [](void*, const char*, void*, std::size_t, std::size_t*, int64_t) { return -3; },
        .add = [](void*, const char*, int64_t, int64_t*) { return 9; }};
    const auto store = make_callback_store(callbacks, nullptr, "job");
    const auto set = store->set("my/key", "x", soon());
    REQUIRE(!set);
    CHECK(contains(set.error().message, "callback set failed with 5 for key \"my/key\""));
    const auto got = store->get("my/key", soon());
    REQUIRE(!got);
    CHECK(contains(got.error().message, "callback get failed with -3 for key \"my/key\""));
    std::string existing;
    const auto claimed = store->claim("my/key", "x", existing, soon());
    REQUIRE(!claimed);
    CHECK(contains(claimed.error().message, "callback add failed with 9 for key \"my/key\""));
}

TEST_CASE("callback store: an impossible length is refused, a growing value is read whole") {
    StoreCallbacks callbacks = HostStore::callbacks();
    callbacks.get = [](void*, const char*, void*, std::size_t, std::size_t* bytes, int64_t) {
        *bytes = static_cast<std::size_t>(-1);
        return 0;
    };
    HostStore host;
    const auto store = make_callback_store(callbacks, &host, "job");
    const auto got = store->get("key", soon());
    REQUIRE(!got);
    CHECK(got.error().code == Code::invalid);
    CHECK(contains(got.error().message, "key"));
}

TEST_CASE("callback store: calls one at a time, however many stores have the same callbacks") {
    static std::atomic<int> inside{0}, most{0};
    struct Call {
        Call() {
            const int now = ++inside;
            if (now > most) most = now;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ~Call() { --inside; }
    };
    const StoreCallbacks callbacks{
        .set = [](void*, const char*, const void*, std::size_t) { return Call(), 0; },
        .get = [](void*, const char*, void*, std::size_t, std::size_t*,
                  int64_t) { return Call(), 1; },
        .add = [](void*, const char*, int64_t, int64_t* result) { return Call(), *result = 1, 0; }};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            const auto store = make_callback_store(callbacks, nullptr, "job");
            std::string existing;
            for (int turn = 0; turn < 20; ++turn) {
                (void)store->try_get("k", soon());
                (void)store->claim("k", "v", existing, soon());
                (void)store->set("k", "v", soon());
                (void)store->get("k", Deadline::after_ms(1));
                (void)store->remove("k", soon());
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(most == 1);
}
