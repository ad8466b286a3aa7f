// When a rank beats, and when a neighbour counts as silent: no sockets, and time is an argument.
#include "job/heartbeat.h"

#include <utility>
#include <vector>

#include "support/catch.h"

using namespace tutti;

namespace {

constexpr int64_t ms = 1'000'000, second = 1'000 * ms;

/// A rank with a heartbeat of one second, whose thread runs as long as it is not stopped.
struct BeatingRank {
    BeatingRank() {
        heartbeat.pulse(now);
        heartbeat.begin(now);
        heartbeat.pulse(now);
    }

    /// Time passes. The peers in `talking` beat every 250 ms.
    void run(int64_t for_ns) {
        for (const int64_t end = now + for_ns; now < end;) {
            now += ms;
            if (now % (250 * ms) == 0)
                for (const Rank peer : talking) heartbeat.note_beat(peer, now);
            if (now < heartbeat.due_ns()) continue;
            const Heartbeat::Pulse pulse = heartbeat.pulse(now);
            beats += pulse.beat ? 1 : 0;
            for (const auto& one : pulse.silent) silent.push_back({one.peer, one.silent_ms});
        }
    }
    /// The process does not run. The peers' beats wait in its sockets.
    void stop(int64_t for_ns) { now += for_ns; }

    Heartbeat heartbeat{1000};
    int64_t now = 100 * second;
    int beats = 0;
    std::vector<Rank> talking;
    std::vector<std::pair<Rank, int64_t>> silent;
};

}  // namespace

TEST_CASE("heartbeat: four beats in a period, and none before it begins or if it is off") {
    BeatingRank rank;
    rank.run(10 * second);
    CHECK(rank.beats == 40);
    CHECK(rank.silent.empty());

    Heartbeat waiting(1000), off(0);
    CHECK(waiting.due_ns() == Heartbeat::never_ns);
    CHECK_FALSE(off.begin(0));
    CHECK(off.due_ns() == Heartbeat::never_ns);
    CHECK_FALSE(off.doubts(100 * second));
    CHECK(waiting.begin(0));
    CHECK_FALSE(waiting.begin(0));
}

TEST_CASE("heartbeat: a neighbour that stops beating is silent after one period, once") {
    BeatingRank rank;
    rank.talking = {2, 7};
    rank.run(60 * second);
    CHECK(rank.silent.empty());
    rank.talking = {7};
    rank.run(5 * second);
    REQUIRE(rank.silent.size() == 1);
    CHECK(rank.silent[0].first == 2);
    CHECK(rank.silent[0].second >= 1000);
    CHECK(rank.silent[0].second <= 1030);
}

TEST_CASE("heartbeat: a neighbour that has never sent a beat is not watched") {
    BeatingRank rank;
    rank.heartbeat.note_message(3, rank.now);
    rank.run(60 * second);
    CHECK(rank.silent.empty());
}

TEST_CASE("heartbeat: any message is a sign of life, and a closed link ends the watch") {
    BeatingRank rank;
    rank.heartbeat.note_beat(2, rank.now);
    rank.run(900 * ms);
    rank.heartbeat.note_message(2, rank.now);
    rank.run(900 * ms);
    CHECK(rank.silent.empty());
    rank.heartbeat.forget(2);
    rank.run(10 * second);
    CHECK(rank.silent.empty());
}

TEST_CASE("heartbeat: a message that comes between the two looks ends the suspicion") {
    BeatingRank rank;
    rank.heartbeat.note_beat(2, rank.now);
    rank.run(1005 * ms);
    rank.heartbeat.note_message(2, rank.now);
    rank.run(900 * ms);
    CHECK(rank.silent.empty());
}

TEST_CASE("heartbeat: a process that did not run blames no neighbour") {
    for (const int64_t stopped : {800 * ms, 3 * second, 3600 * second}) {
        INFO("stopped for " << stopped / ms << " ms");
        BeatingRank rank;
        rank.talking = {2};
        rank.run(10 * second);
        rank.stop(stopped);
        rank.talking = {};
        rank.run(900 * ms);
        CHECK(rank.silent.empty());
        rank.run(200 * ms);
        CHECK(rank.silent.size() == 1);
    }
}

TEST_CASE("heartbeat: a process that did not run doubts itself before it beats, too") {
    Heartbeat heartbeat(1000);
    heartbeat.pulse(0);
    CHECK_FALSE(heartbeat.doubts(700 * ms));
    // It goes on, and reads the first beat before its timer.
    heartbeat.begin(3 * second);
    CHECK(heartbeat.doubts(3 * second));
    CHECK(heartbeat.pulse(3 * second).beat);
    CHECK(heartbeat.doubts(4 * second));
}

TEST_CASE("heartbeat: a process doubts itself after a stop that may have looked like its end") {
    BeatingRank rank;
    rank.run(10 * second);
    CHECK_FALSE(rank.heartbeat.doubts(rank.now));
    rank.stop(400 * ms);
    CHECK_FALSE(rank.heartbeat.doubts(rank.now));
    rank.run(5 * second);
    CHECK_FALSE(rank.heartbeat.doubts(rank.now));

    // Its neighbours may count from a beat that it sent a quarter of the period before.
    rank.stop(760 * ms);
    CHECK(rank.heartbeat.doubts(rank.now));
    rank.run(1900 * ms);
    CHECK(rank.heartbeat.doubts(rank.now));
    rank.run(200 * ms);
    CHECK_FALSE(rank.heartbeat.doubts(rank.now));
}

TEST_CASE("heartbeat: another thread beats while the pulse is late, and not otherwise") {
    BeatingRank rank;
    for (int i = 0; i < 50; ++i) {
        rank.run(97 * ms);
        CHECK_FALSE(rank.heartbeat.note_running(rank.now));
    }
    rank.stop(400 * ms);
    CHECK(rank.heartbeat.note_running(rank.now));
    CHECK_FALSE(Heartbeat(1000).note_running(rank.now));
    CHECK(rank.heartbeat.beat_check_ms() == 125);
}

TEST_CASE("heartbeat: a rank doubts nothing while another of its threads runs") {
    BeatingRank busy, stopped;
    for (int i = 0; i < 40; ++i) {
        busy.stop(125 * ms);
        busy.heartbeat.note_running(busy.now);
    }
    stopped.stop(5 * second);
    CHECK_FALSE(busy.heartbeat.doubts(busy.now));
    CHECK(stopped.heartbeat.doubts(stopped.now));
    busy.run(10 * ms);
    stopped.run(10 * ms);
    CHECK_FALSE(busy.heartbeat.doubts(busy.now));
    CHECK(stopped.heartbeat.doubts(stopped.now));
    CHECK(busy.silent.empty());
}

TEST_CASE("heartbeat: a process that was stopped doubts, whichever of its threads runs first") {
    for (const bool other_first : {false, true}) {
        INFO("the other thread runs first: " << other_first);
        BeatingRank rank;
        rank.heartbeat.note_running(rank.now);
        rank.stop(5 * second);
        if (other_first) rank.heartbeat.note_running(rank.now);
        rank.run(10 * ms);
        if (!other_first) rank.heartbeat.note_running(rank.now);
        CHECK(rank.heartbeat.doubts(rank.now));
    }
}
