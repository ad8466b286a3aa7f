// Threads that drive the lanes between two endpoints, each its own, one of them sleeping when
// nothing moves.
#pragma once

#include <algorithm>
#include <array>

#include "transport/joined.h"

namespace tutti::test {

/// Sends and checks `messages` messages on one lane each way; sleeps in the doorbell or the sockets
/// when nothing moves.
struct LaneDriver {
    TestEndpoint& endpoint;
    Sender& sender;
    Receiver& receiver;
    uint64_t messages;
    std::size_t bytes;
    bool sleeps;
    uint64_t good = 0;

    void run() {
        // Bounds the time between messages: under a sanitizer and load, all may take a minute.
        auto deadline = Deadline::after_ms(patience_ms);
        const Buffer out = pattern(bytes, 5);
        Buffer wanted(bytes);
        uint64_t sent = 0, got = 0;
        bool offered = false;
        while ((sent < messages || got < messages || !sender.drained()) && !deadline.passed()) {
            bool moved = false;
            if (sent < messages && sender.can_push()) {
                sender.push(make_tag(sent++), out.data(), bytes);
                moved = true;
            }
            if (!offered && got < messages) {
                receiver.offer(make_tag(got), wanted.data(), bytes);
                offered = true;
            }
            const auto message = receiver.peek(make_tag(got), bytes);
            if (message.data) {
                good += message.tag == make_tag(got) &&
                        std::equal(out.begin(), out.end(), message.data);
                receiver.release();
                ++got;
                offered = false;
                moved = true;
            }
            if (moved) {
                deadline = Deadline::after_ms(patience_ms);
                continue;
            }
            endpoint.transport->progress();
            if (sleeps) {
                sleep(sent, got);
            } else {
                std::this_thread::yield();
            }
        }
    }

    void sleep(uint64_t sent, uint64_t got) {
        sender.arm(true);
        receiver.arm(true);
        endpoint.transport->progress();
        const bool over = sent == messages && got == messages && sender.drained();
        const bool ready = over || (sent < messages && sender.can_push()) ||
                           receiver.peek(make_tag(got), bytes).data;
        // Longer than the test may take: a wake-up that was lost fails it.
        if (!ready) endpoint.data.poll(2 * patience_ms);
        sender.arm(false);
        receiver.arm(false);
    }
};

/// Three lanes both ways, of messages that are small, middling and as large as they get.
inline void drive_lanes(const JoinedTransport& kind, std::size_t largest,
                        const std::array<uint64_t, 3>& counts) {
    Duo duo(kind);
    struct Pair {
        Duo::Lane there, back;
    };
    std::vector<Pair> pairs;
    for (uint16_t lane = 0; lane < 3; ++lane)
        pairs.push_back({duo.open(lane), Duo::open(duo.b, duo.a, lane)});
    const std::size_t sizes[] = {24, 5000, largest};
    std::vector<std::unique_ptr<LaneDriver>> drivers;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
        const bool sleeps = i == 1;
        drivers.push_back(std::make_unique<LaneDriver>(LaneDriver{
            duo.a, *pairs[i].there.sender, *pairs[i].back.receiver, counts[i], sizes[i], sleeps}));
        drivers.push_back(std::make_unique<LaneDriver>(LaneDriver{
            duo.b, *pairs[i].back.sender, *pairs[i].there.receiver, counts[i], sizes[i], sleeps}));
    }
    std::vector<std::thread> threads;
    for (auto& driver : drivers) threads.emplace_back([&driver] { driver->run(); });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t i = 0; i < drivers.size(); ++i) {
        INFO("driver " << i);
        REQUIRE(drivers[i]->good == counts[i / 2]);
    }
}

}  // namespace tutti::test
