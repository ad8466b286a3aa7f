#include "wait/handover.h"

#include "support/catch.h"

using tutti::Handover;

namespace {

constexpr int long_ms = 1000;

// The program waits for each operation at once. Returns how often the thread was told.
int issue_and_wait(Handover& handover, int times) {
    int told = 0;
    for (int i = 0; i < times; ++i) {
        told += handover.issued();
        told += handover.claimed();
    }
    return told;
}

}  // namespace

TEST_CASE("handover: the thread is told of every operation at first") {
    Handover handover;
    for (int i = 0; i < 3 * Handover::enough_claims; ++i) CHECK(handover.issued());
    CHECK(handover.sleep_ms(long_ms) == long_ms);
}

TEST_CASE("handover: after a run of operations that were waited for, the thread looks by itself") {
    Handover handover;
    // Told of each, and once of the change.
    CHECK(issue_and_wait(handover, Handover::enough_claims) == Handover::enough_claims + 1);
    CHECK(handover.sleep_ms(long_ms) == Handover::tick_ms);
    CHECK(issue_and_wait(handover, 1000) == 0);
    CHECK(handover.sleep_ms(long_ms) == Handover::tick_ms);
}

TEST_CASE("handover: one that nobody waits for brings the telling back") {
    Handover handover;
    issue_and_wait(handover, 1000);
    CHECK_FALSE(handover.issued());
    handover.needed();
    CHECK(handover.issued());
    CHECK(handover.sleep_ms(long_ms) == long_ms);
}

TEST_CASE("handover: waiting twice for one operation counts once") {
    Handover handover;
    handover.issued();
    for (int i = 0; i < 3 * Handover::enough_claims; ++i) CHECK_FALSE(handover.claimed());
    CHECK(handover.issued());
}

TEST_CASE("handover: a program that stopped issuing is left alone, after one more look") {
    Handover handover;
    issue_and_wait(handover, 1000);
    int ticks = 0;
    int sleep_ms = 0;
    while ((sleep_ms = handover.sleep_ms(long_ms)) == Handover::tick_ms && ticks < 1000) ++ticks;
    CHECK(ticks == Handover::most_idle_ticks);
    CHECK(sleep_ms == 0);
    CHECK(handover.sleep_ms(long_ms) == long_ms);
    CHECK(handover.issued());
}
