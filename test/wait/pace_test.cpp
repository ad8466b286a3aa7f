#include "wait/pace.h"

#include "support/catch.h"

using tutti::Deadline;
using tutti::now_ns;
using tutti::Pace;

TEST_CASE("pace: a thread that pauses until a deadline stops there") {
    constexpr int64_t limit_ms = 20;
    const int64_t start_ns = now_ns();
    Pace pace(Deadline::after_ms(limit_ms), {.sleep_us = 1000});
    int pauses = 0;
    while (pace.pause()) ++pauses;
    CHECK(tutti::ns_to_ms(now_ns() - start_ns) >= limit_ms);
    CHECK(pauses <= limit_ms);
    CHECK_FALSE(pace.pause());
    CHECK(Pace(Deadline::after_ms(60'000), {.sleep_us = 1000}).pause());
}

TEST_CASE("pace: a thread yields as often as it is told, and sleeps then") {
    constexpr int64_t sleep_ns = 2'000'000;
    constexpr int yields = 3, sleeps = 2;
    Pace pace(Deadline(), {.yields = yields, .sleep_us = sleep_ns / 1000});
    int slept = 0;
    for (int i = 0; i < yields + sleeps; ++i) {
        const int64_t start_ns = now_ns();
        CHECK(pace.pause());
        // A yield may take long on a busy machine; a sleep is never short.
        if (i >= yields) slept += now_ns() - start_ns >= sleep_ns;
    }
    CHECK(slept == sleeps);
}

TEST_CASE("pace: without a deadline and pauses, a thread yields for ever") {
    Pace pace{Deadline()};
    for (int i = 0; i < 1000; ++i) REQUIRE(pace.pause());
}
