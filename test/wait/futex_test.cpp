// Sleeping on several words.
#include "wait/futex.h"

#include <array>
#include <thread>

#include "base/clock.h"
#include "support/catch.h"

using namespace tutti;

namespace {

constexpr int64_t patience_ns = 60'000'000'000;

bool lacks_futex_waitv() {
    if (futex::can_sleep_on_any()) return false;
    WARN("skipped: this system lacks futex_waitv");
    return true;
}

// For a word that another thread changes; returns early at most so often that this ends.
bool sleep_until_changed(const futex::WaitedWord& first, const futex::WaitedWord& second) {
    const int64_t end_ns = now_ns() + patience_ns;
    while (first.word->load() == first.expected && second.word->load() == second.expected) {
        if (now_ns() > end_ns) return false;
        const std::array words{first, second};
        if (!futex::sleep_on_any(words)) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("futex: any of several words ends a sleep, shared or not") {
    if (lacks_futex_waitv()) return;
    for (const bool shared : {false, true}) {
        std::atomic<uint32_t> first{1}, second{2};
        std::atomic<bool> changed{true};
        std::thread sleeper([&] {
            changed = sleep_until_changed({&first, 1, shared}, {&second, 2, shared});
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        second = 3;
        futex::wake_all(second, shared);
        sleeper.join();
        CHECK(changed);
    }
}

TEST_CASE("futex: a word that has changed already lets no thread sleep") {
    if (lacks_futex_waitv()) return;
    const std::atomic<uint32_t> word{1};
    const std::array words{futex::WaitedWord{&word, 2, true}};
    CHECK(futex::sleep_on_any(words));
}

TEST_CASE("futex: words that the system cannot wait for are reported") {
    if (lacks_futex_waitv()) return;
    const std::array words{futex::WaitedWord{nullptr, 0, true}};
    CHECK_FALSE(futex::sleep_on_any(words));
}
