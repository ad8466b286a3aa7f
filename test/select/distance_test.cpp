// Distance and choices: coarse latencies, messages that keep a long way busy, and their bounds.
#include "select/distance.h"

#include <bit>
#include <cmath>
#include <limits>

#include "select/selection.h"
#include "select/units.h"
#include "support/catch.h"

using namespace tutti;

namespace {

// Hosts of one rank each, as the survey has them.
SelectionInput apart(Rank ranks, double round_trip_us, std::size_t far_message_bytes = 8 * mib) {
    SelectionInput t;
    t.ranks = ranks;
    t.hosts = {.hosts = ranks, .smallest = 1, .largest = 1};
    t.max_message_bytes = 128 * kib;
    t.wire = "shm+tcp";
    t.constants = default_constants(t.wire, {});
    const double latency_us = coarse_latency_us(round_trip_us);
    if (latency_us <= 0) return t;
    t.far_message_bytes = far_message_bytes;
    t.constants = over_distance(t.constants, latency_us, false);
    return t;
}

std::size_t window(double hop_us, double kib_us, MessageWindow request) {
    Constants constants{};
    at(constants, Term::hop) = hop_us;
    at(constants, Term::kib) = kib_us;
    return window_message_bytes(request, constants);
}

}  // namespace

TEST_CASE("distance: a millisecond there and back is near, and a longer way is known coarsely") {
    for (const double near : {0.0, 30.0, 999.0, -5.0, std::nan("")})
        CHECK(coarse_latency_us(near) == 0);
    CHECK(coarse_latency_us(std::numeric_limits<double>::infinity()) == 0);
    CHECK(coarse_latency_us(1000) == 500);
    CHECK(coarse_latency_us(1900) == 500);
    CHECK(coarse_latency_us(2100) == 2000);
    for (const double same : {9000.0, 20'000.0, 31'000.0}) CHECK(coarse_latency_us(same) == 8000);
    CHECK(coarse_latency_us(150'000) == 128'000);
    // Never more than twice too long or too short.
    for (double us = 1000; us < 1e6; us *= 1.07) {
        const double ratio = 2 * coarse_latency_us(us) / us;
        CHECK(ratio <= 2.001);
        CHECK(ratio >= 0.499);
    }
}

TEST_CASE("window: the other lanes' messages take as long to leave as one is on its way") {
    // 10 ms at 1 µs for 1,024 bytes: 10,000 KiB.
    const MessageWindow two{.lanes = 2, .credits = 8, .least = 128 * kib, .most = 64 * mib};
    CHECK(window(10'000, 1, two) == 16 * mib);
    MessageWindow five = two;
    five.lanes = 5;
    CHECK(window(10'000, 1, five) == 4 * mib);
    for (double hop_us = 1; hop_us < 1e6; hop_us *= 3)
        for (double kib_us = 0.1; kib_us < 100; kib_us *= 3) {
            const std::size_t bytes = window(hop_us, kib_us, two);
            CHECK(std::has_single_bit(bytes));
            CHECK(bytes >= two.least);
            CHECK(bytes <= two.most);
            const double leaves_us = static_cast<double>(bytes) / kib * kib_us;
            if (bytes < two.most) CHECK(leaves_us >= hop_us);
            if (bytes > two.least) CHECK(leaves_us <= 2 * hop_us + 2 * kib_us);
        }
}

TEST_CASE("window: a lane that streams has half of its credits under way for a round trip") {
    MessageWindow stream{.lanes = 2, .credits = 8, .streams = true, .least = kib, .most = 64 * mib};
    for (double hop_us = 100; hop_us < 1e5; hop_us *= 3) {
        const auto bytes = static_cast<double>(window(hop_us, 1, stream));
        CHECK(bytes / kib * 4 * 2 >= 2 * hop_us);
    }
    stream.credits = 1;
    CHECK(window(10'000, 1, stream) > mib);
}

TEST_CASE("window: memory bounds it, and one lane alone takes what memory allows") {
    MessageWindow request{.lanes = 2, .credits = 8, .least = 128 * kib, .most = mib};
    CHECK(window(1e6, 0.1, request) == mib);
    request.lanes = 1;
    CHECK(window(1, 1, request) == mib);
    request.most = 64 * kib;  // less than the least
    request.lanes = 2;
    CHECK(window(1, 1, request) == 64 * kib);
    CHECK(window(1e6, 0, request) == 64 * kib);  // constants of a file may be 0
}

TEST_CASE("distance: a measured rate stays, and a way that was measured to be longer") {
    Constants constants{};
    at(constants, Term::hop) = 9000;
    at(constants, Term::kib) = 0.2;
    CHECK(over_distance(constants, 8000, true) == constants);
    CHECK(at(over_distance(constants, 32'000, true), Term::hop) == 32'000);
    CHECK(at(over_distance(constants, 32'000, true), Term::kib) == 0.2);
    CHECK(at(over_distance(constants, 8000, false), Term::kib) > 0.2);
    at(constants, Term::kib) = 8;  // a slow wire is not taken for a quicker one
    CHECK(at(over_distance(constants, 8000, false), Term::kib) == 8);
}

TEST_CASE("distance: messages grow with it, as far as memory allows, and hops count") {
    const Question q{.collective = Collective::allreduce, .bytes = 64 * mib};
    const auto chosen = [&](const SelectionInput& t, std::size_t bytes) {
        Question of = q;
        of.bytes = bytes;
        return *select(of, t);
    };
    CHECK(chosen(apart(4, 100), 64 * mib).message_bytes == 128 * kib);
    const Choice far = chosen(apart(4, 20'000), 64 * mib);
    CHECK(far.message_bytes == 8 * mib);
    CHECK(chosen(apart(4, 20'000, mib), 64 * mib).message_bytes == mib);
    CHECK(chosen(apart(4, 1500), 64 * mib).message_bytes < 8 * mib);
    // Two hops instead of a ring's six, until the links' queues would count for more.
    CHECK(chosen(apart(4, 20'000), mib).name == "direct");
    CHECK(far.name == "ring");
    CHECK(chosen(apart(4, 100), 64 * mib).name == "ring");
}

TEST_CASE("distance: messages stay as they are where some go through shared memory") {
    SelectionInput t = apart(8, 20'000);
    t.hosts = {.hosts = 4, .smallest = 2, .largest = 2};
    Question q{.collective = Collective::allreduce, .bytes = 64 * mib};
    for (const Choice& choice : candidates(q, t)) CHECK(choice.message_bytes <= 128 * kib);
    // Short messages count all the ways that a lane waits for.
    CHECK(select(q, t)->name == "hierarchical");
    CHECK(select({.collective = Collective::allreduce, .bytes = mib}, t)->name == "direct");
    q.wanted = "hierarchical";
    CHECK(select(q, t)->lanes == max_lanes_per_stream);
    q.bytes = mib;  // too little for more
    CHECK(select(q, t)->lanes == 4);
    q.bytes = 64 * kib;
    CHECK(select(q, t)->lanes == 1);
    q.bytes = 64 * mib;
    q.wanted = {};
    t.hosts = {};  // not known yet
    for (const Choice& choice : candidates(q, t)) CHECK(choice.message_bytes <= 128 * kib);
    t.ranks = 2;  // but two ranks on several hosts have one each
    for (const Choice& choice : candidates(q, t)) CHECK(choice.message_bytes >= 4 * mib);
}

TEST_CASE("distance: a lane with tiles to come waits for each that memory keeps too short") {
    Question q{.collective = Collective::allreduce, .bytes = 512 * mib, .wanted = "ring"};
    const auto hops = [&](std::size_t far_message_bytes) {
        return at(select(q, apart(4, 60'000, far_message_bytes))->terms, Term::hop);
    };
    CHECK(hops(64 * mib) == 6);
    CHECK(hops(mib) == 6 * 64);
}
