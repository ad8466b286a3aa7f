// Registrations of the caller's memory: when they are used again, and when they must not be.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "support/catch.h"
#include "transport/registration/memory_monitor.h"
#include "transport/registration/library_memory.h"
#include "transport/registration/registration_cache.h"

namespace tutti::test {
namespace {

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// Registers nothing, and knows what is registered.
class FakeRegistrar final : public MemoryRegistrar {
public:
    Result<void*> register_memory(std::byte* data, std::size_t bytes) override {
        if (bytes > most_bytes) return fail(Code::no_memory, "too much");
        ++registered;
        const auto begin = reinterpret_cast<std::uintptr_t>(data);
        const std::uintptr_t handle = registered;
        live[handle] = {begin, begin + bytes};
        return reinterpret_cast<void*>(handle);
    }
    void deregister(void* handle) override {
        REQUIRE(live.erase(reinterpret_cast<std::uintptr_t>(handle)) == 1);
    }
    std::size_t most_bytes = ~std::size_t{0};
    std::uintptr_t registered = 0;
    std::map<std::uintptr_t, MemoryRange> live;
};

/// Says that memory has gone when the test says so.
class FakeWatch final : public MemoryWatch {
public:
    bool watch(const MemoryRange& range) override {
        if (refuses) return false;
        watched.insert(range.begin);
        return true;
    }
    void unwatch(const MemoryRange& range) override { REQUIRE(watched.erase(range.begin) == 1); }
    bool gone(MemoryRange& range) override {
        if (went.empty()) return false;
        range = went.back();
        went.pop_back();
        return true;
    }
    bool refuses = false;
    std::set<std::uintptr_t> watched;
    std::vector<MemoryRange> went;
};

std::byte* at(std::size_t pages) {
    return reinterpret_cast<std::byte*>((pages + 1000) * page);
}
MemoryRange range_of(std::byte* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    return {begin, begin + bytes};
}

struct Fixture {
    explicit Fixture(std::size_t max_bytes = 1 << 20, std::size_t max_count = 100)
        : cache({&registrar, &watch, max_bytes, max_count}) {}
    void use(std::byte* data, std::size_t bytes) {
        const auto entry = cache.acquire(data, bytes);
        REQUIRE(entry);
        REQUIRE((*entry)->range.covers(range_of(data, bytes)));
        cache.release(*entry);
    }
    FakeRegistrar registrar;
    FakeWatch watch;
    RegistrationCache cache;
};

TEST_CASE("registrations: are used again, also for a part of what is registered") {
    Fixture f;
    f.use(at(0), 10 * page);
    f.use(at(0), 10 * page);
    f.use(at(3) + 5, 2 * page);
    REQUIRE(f.registrar.registered == 1);
    REQUIRE(f.cache.count() == 1);
}

TEST_CASE("registrations: grow together where they meet, and leave those in use as they are") {
    Fixture f;
    const auto held = f.cache.acquire(at(0), 2 * page);
    REQUIRE(held);
    f.use(at(1), 3 * page);
    REQUIRE(f.cache.count() == 1);
    REQUIRE(f.registrar.live.size() == 2);
    f.use(at(0), 4 * page);
    REQUIRE(f.registrar.registered == 2);
    f.cache.release(*held);
    REQUIRE(f.registrar.live.size() == 1);
}

TEST_CASE("registrations: of memory that has gone are not used, and end with their last user") {
    Fixture f;
    const auto held = f.cache.acquire(at(0), 4 * page);
    f.use(at(10), 4 * page);
    f.watch.went = {range_of(at(3), page), range_of(at(12), 50 * page)};
    f.use(at(0), page);
    REQUIRE(f.registrar.registered == 3);
    REQUIRE(f.registrar.live.size() == 2);
    f.cache.release(*held);
    f.use(at(10), page);
    REQUIRE(f.registrar.registered == 4);
    REQUIRE(f.registrar.live.size() == 2);
}

TEST_CASE("registrations: the longest unused ones end when there are too many or too large ones") {
    Fixture f(8 * page, 3);
    for (std::size_t i = 0; i < 4; ++i) f.use(at(10 * i), page);
    REQUIRE(f.cache.count() == 3);
    f.use(at(10), page);  // used again: now the youngest
    f.use(at(50), 7 * page);
    REQUIRE(f.cache.idle_bytes() == 8 * page);
    f.use(at(10), page);
    REQUIRE(f.registrar.registered == 5);
    f.use(at(100), 9 * page);  // too large to be kept
    REQUIRE(f.cache.count() == 0);
    REQUIRE(f.registrar.live.empty());
    REQUIRE(f.watch.watched.empty());
}

TEST_CASE("registrations: without a watch only memory that was added is kept") {
    FakeRegistrar registrar;
    RegistrationCache cache({.registrar = &registrar});
    const auto use = [&](std::byte* data, std::size_t bytes) {
        const auto entry = cache.acquire(data, bytes);
        REQUIRE(entry);
        REQUIRE(registrar.live.size() >= 1);
        cache.release(*entry);
    };
    use(at(0), page);
    use(at(0), page);
    REQUIRE((registrar.registered == 2 && registrar.live.empty()));
    REQUIRE(cache.add(at(0), 10 * page));
    use(at(2), page);
    use(at(5), 5 * page);
    REQUIRE(registrar.registered == 3);
    use(at(5), 6 * page);  // not all of it was added
    use(at(5), page);
    REQUIRE(registrar.registered == 4);
    cache.remove(at(0), 10 * page);
    REQUIRE(registrar.live.empty());
    use(at(2), page);
    REQUIRE(registrar.registered == 5);
}

TEST_CASE("registrations: what cannot be watched is registered for one use") {
    Fixture f;
    f.watch.refuses = true;
    f.use(at(0), page);
    f.use(at(0), page);
    REQUIRE((f.registrar.registered == 2 && f.registrar.live.empty()));
}

TEST_CASE("registrations: what is unused makes room when the library has none") {
    Fixture f;
    f.use(at(0), 4 * page);
    f.registrar.most_bytes = 2 * page;
    f.use(at(3), 2 * page);  // not together with what it meets
    REQUIRE(f.cache.count() == 1);
    const auto none = f.cache.acquire(at(20), 3 * page);
    REQUIRE_FALSE(none);
    REQUIRE(none.error().code == Code::no_memory);
    REQUIRE(f.cache.count() == 0);
    REQUIRE(f.watch.watched.empty());
}

TEST_CASE("registrations: stay right under a random life") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    std::minstd_rand random(static_cast<uint32_t>(seed + 1));
    Fixture f(60 * page, 10);
    std::vector<RegistrationCache::Entry*> held;
    for (int turn = 0; turn < 20'000; ++turn) {
        std::byte* const data = at(random() % 200);
        const std::size_t bytes = 1 + random() % (20 * page);
        const auto what = random() % 8;
        if (what == 0) f.watch.went.push_back(range_of(data, round_up(bytes, page)));
        if (what >= 1 && what <= 4) {
            const auto entry = f.cache.acquire(data, bytes);
            REQUIRE(entry);
            REQUIRE((*entry)->range.covers(range_of(data, bytes)));
            held.push_back(*entry);
        }
        if (what >= 4 && !held.empty()) {
            std::swap(held[random() % held.size()], held.back());
            f.cache.release(held.back());
            held.pop_back();
        }
        REQUIRE(f.cache.idle_bytes() <= 60 * page);
        REQUIRE(f.registrar.live.size() <= f.cache.count() + held.size());
    }
    for (auto* entry : held) f.cache.release(entry);
    REQUIRE(f.registrar.live.size() == f.cache.count());
}

// ---- the real watch --------------------------------------------------------------------------

void* map_with(int flags, std::byte* where, std::size_t bytes) {
    void* data =
        ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (data != MAP_FAILED) std::memset(data, 1, bytes);
    return data;
}
std::byte* map_anywhere(std::size_t bytes) {
    void* data = map_with(0, nullptr, bytes);
    REQUIRE(data != MAP_FAILED);
    return static_cast<std::byte*>(data);
}
/// Over what is mapped there.
void map_over(std::byte* where, std::size_t bytes) {
    REQUIRE(map_with(MAP_FIXED, where, bytes) == where);
}
/// Maps an address that is free again; another one if some thread's stack or heap has taken it
/// meanwhile.
std::byte* map_again(std::byte* where, std::size_t bytes) {
    return map_with(MAP_FIXED_NOREPLACE, where, bytes) == where ? where : map_anywhere(bytes);
}

struct Watched {
    Watched() : monitor(MemoryMonitor::start()) {
        if (!monitor) WARN("skipped: " << monitor.error().message);
        if (monitor)
            cache.emplace(
                RegistrationCache::Options{.registrar = &registrar, .watch = monitor->get()});
    }
    std::uintptr_t use(std::byte* data, std::size_t bytes) {
        const auto entry = cache->acquire(data, bytes);
        REQUIRE(entry);
        const auto handle = reinterpret_cast<std::uintptr_t>((*entry)->handle);
        cache->release(*entry);
        return handle;
    }
    FakeRegistrar registrar;
    Result<std::unique_ptr<MemoryMonitor>> monitor;
    std::optional<RegistrationCache> cache;
};

TEST_CASE("memory monitor: memory that is mapped again at the same address is registered anew") {
    Watched w;
    if (!w.cache) return;
    const std::size_t bytes = 16 * page;
    std::byte* data = map_anywhere(bytes);
    for (int round = 0; round < 300; ++round) {
        const auto first = w.use(data, bytes);
        REQUIRE(w.use(data + page, page) == first);
        switch (round % 4) {
            case 0:
                ::munmap(data, bytes);
                data = map_again(data, bytes);
                break;
            case 1:
                map_over(data + 3 * page, page);
                break;
            case 2:
                REQUIRE(::madvise(data, page, MADV_DONTNEED) == 0);
                break;
            default: {
                void* moved = ::mremap(data, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
                if (moved == MAP_FAILED) continue;
                ::munmap(moved, bytes);
                data = map_again(data, bytes);
            }
        }
        REQUIRE(w.use(data, bytes) != first);
    }
    ::munmap(data, bytes);
    REQUIRE(w.registrar.live.size() <= 1);
}

TEST_CASE("memory monitor: does not disturb memory that is written and read meanwhile") {
    Watched w;
    if (!w.cache) return;
    const std::size_t bytes = 64 * page;
    std::byte* const data = static_cast<std::byte*>(
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(data != MAP_FAILED);
    const auto first = w.use(data, bytes);  // no page was ever touched
    for (std::size_t i = 0; i < bytes; i += page) REQUIRE(data[i] == std::byte{0});
    std::memset(data, 7, bytes);
    REQUIRE(w.use(data, bytes) == first);
    ::munmap(data, bytes);
}

TEST_CASE("memory monitor: threads that unmap while others register do not wait for each other") {
    Watched w;
    if (!w.cache) return;
    const std::size_t bytes = 4 * page;
    std::atomic<bool> done{false};
    std::byte* const shared = map_anywhere(bytes);
    w.use(shared, bytes);
    int refused = 0;  // Catch counts on one thread only
    std::thread other([&] {
        for (int i = 0; i < 2000; ++i) refused += ::madvise(shared, page, MADV_DONTNEED) != 0;
        done = true;
    });
    std::byte* own = map_anywhere(bytes);
    while (!done) {
        const auto first = w.use(own, bytes);
        ::munmap(own, bytes);
        own = map_again(own, bytes);
        REQUIRE(w.use(own, bytes) != first);
        w.use(shared, bytes);
    }
    other.join();
    REQUIRE(refused == 0);
    ::munmap(shared, bytes);
    ::munmap(own, bytes);
}

TEST_CASE("registered memory: a use ends with its object, and none is needed without a registrar") {
    FakeRegistrar registrar;
    // Without userfaultfd nothing tells that memory was mapped anew, so each use registers it.
    const bool kept = MemoryMonitor::start().has_value();
    {
        LibraryMemory memory(&registrar, "fake");
        auto block = RegisteredBlock::make(memory, 2 * page);
        REQUIRE(block);
        std::memset(block->data(), 1, 2 * page);
        const RegisteredBlock moved = std::move(*block);
        REQUIRE(moved.handle() != nullptr);
        REQUIRE(registrar.live.size() == 1);
        auto use = memory.use(moved.data(), page);
        REQUIRE(use);
        void* const handle = use->handle();
        REQUIRE((handle == moved.handle()) == kept);
        registrar.most_bytes = 0;
        Registered other = std::move(*use);
        REQUIRE(other.handle() == handle);
        REQUIRE_FALSE(memory.use(at(7), page));
    }
    REQUIRE(registrar.live.empty());
    LibraryMemory none(nullptr, "fake");
    const auto use = none.use(at(1), page);
    REQUIRE((use && use->handle() == nullptr));
    REQUIRE(none.add(at(1), page));
    none.remove(at(1), page);
}

TEST_CASE("registered memory: everything is deregistered at once, also what is in use") {
    FakeRegistrar registrar;
    LibraryMemory memory(&registrar, "fake");
    auto block = RegisteredBlock::make(memory, page);
    REQUIRE(block);
    REQUIRE(memory.add(at(8), page));
    const auto use = memory.use(at(8), page);
    REQUIRE(use);
    REQUIRE(registrar.live.size() == 2);
    memory.close();
    REQUIRE(registrar.live.empty());
    // The objects end after it.
    memory.remove(at(8), page);
    REQUIRE(memory.use(at(8), page)->handle() == nullptr);
}

}  // namespace
}  // namespace tutti::test
