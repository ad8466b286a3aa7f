// The channel contract under load: sleepers, and two threads that send both ways.
#include <algorithm>
#include <cstring>
#include <random>

#include "transport/joined.h"

namespace tutti::test {
namespace {

TEST_CASE("channel: wakes a reader and a writer that sleep") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const Buffer data = pattern(9000, 1);
            const uint32_t credits = duo.a.transport->capabilities().credits;
            constexpr uint64_t rounds = 60;
            const auto deadline = Deadline::after_ms(patience_ms);

            // The writer fills the channel before it sleeps, the reader empties it, so both sleep
            // often.
            std::thread writer([&] {
                for (uint64_t i = 0; i < rounds * credits; ++i) {
                    while (lane.sender->reserve(data.size()) == nullptr && !deadline.passed()) {
                        lane.sender->arm(true);
                        duo.a.transport->progress();
                        if (lane.sender->reserve(data.size()) == nullptr)
                            duo.a.data.poll(patience_ms);
                        lane.sender->arm(false);
                    }
                    std::byte* place = lane.sender->reserve(data.size());
                    if (place == nullptr) return;
                    std::memcpy(place, data.data(), data.size());
                    lane.sender->commit(make_tag(i), data.size());
                    if (i % 17 == 0) ::usleep(300);
                }
                while (!lane.sender->drained() && !deadline.passed()) duo.a.turn();
            });
            uint64_t got = 0;
            while (got < rounds * credits && !deadline.passed()) {
                auto message = lane.receiver->peek(make_tag(got), data.size());
                if (message.data == nullptr) {
                    lane.receiver->arm(true);
                    duo.b.transport->progress();
                    if (lane.receiver->peek(make_tag(got), data.size()).data == nullptr)
                        duo.b.data.poll(patience_ms);
                    lane.receiver->arm(false);
                    continue;
                }
                if (message.tag != make_tag(got)) break;
                if (got % 23 == 0) ::usleep(300);
                lane.receiver->release();
                ++got;
            }
            // The last releases may still be on their way to a writer that sleeps.
            std::atomic<bool> joined_writer{false};
            std::thread turner([&] {
                while (!joined_writer) duo.b.turn();
            });
            writer.join();
            joined_writer = true;
            turner.join();
            REQUIRE(got == rounds * credits);
            REQUIRE_FALSE(deadline.passed());
        }
}

// Sends random messages on one channel and checks random messages of another; both sides draw the
// sizes from the same seeds.
void play(TestEndpoint& own, Sender& sender, Receiver& receiver, uint32_t seed_out,
          uint32_t seed_in, uint64_t messages, std::atomic<uint64_t>& good) {
    std::minstd_rand sizes_out(seed_out), sizes_in(seed_in);
    const std::size_t most = own.transport->capabilities().max_message_bytes;
    const auto draw = [&](std::minstd_rand& random) {
        const std::size_t limit = std::size_t{1} << random() % 18;
        return std::min<std::size_t>(most, random() % (limit + 1));
    };
    // Bounds the time between messages: under a sanitizer and load, the whole may take a minute.
    auto deadline = Deadline::after_ms(patience_ms);
    uint64_t sent = 0, got = 0;
    std::size_t out_bytes = draw(sizes_out), in_bytes = draw(sizes_in);
    Buffer pushed;
    while ((sent < messages || got < messages || !sender.drained()) && !deadline.passed()) {
        own.turn();
        if (sent < messages && sender.drained()) {
            const bool push = sent % 3 == 1;
            if (push && sender.can_push()) {
                pushed = pattern(out_bytes, seed_out + sent);
                sender.push(make_tag(sent), pushed.data(), out_bytes);
                ++sent;
                out_bytes = draw(sizes_out);
            } else if (std::byte* place = push ? nullptr : sender.reserve(out_bytes)) {
                const Buffer data = pattern(out_bytes, seed_out + sent);
                if (out_bytes > 0) std::memcpy(place, data.data(), out_bytes);
                sender.commit(make_tag(sent), out_bytes);
                ++sent;
                out_bytes = draw(sizes_out);
            }
        }
        const auto message = receiver.peek(make_tag(got), in_bytes);
        if (message.data == nullptr) {
            std::this_thread::yield();
            continue;
        }
        const Buffer wanted = pattern(in_bytes, seed_in + got);
        if (message.tag == make_tag(got) && std::equal(wanted.begin(), wanted.end(), message.data))
            good.fetch_add(1);
        receiver.release();
        ++got;
        in_bytes = draw(sizes_in);
        deadline = Deadline::after_ms(patience_ms);
    }
}

TEST_CASE("channel: keeps every byte when two threads send random sizes both ways") {
    const auto seed = std::random_device{}();
    INFO("seed " << seed);
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto there = duo.open(0);
            auto back = Duo::open(duo.b, duo.a, 0);
            constexpr uint64_t messages = 1500;
            std::atomic<uint64_t> good_a{0}, good_b{0};
            std::thread other([&] {
                play(duo.b, *back.sender, *there.receiver, seed % 1000 + 2, seed % 1000 + 1,
                     messages, good_b);
            });
            play(duo.a, *there.sender, *back.receiver, seed % 1000 + 1, seed % 1000 + 2, messages,
                 good_a);
            other.join();
            CHECK(good_a == messages);
            CHECK(good_b == messages);
        }
}

}  // namespace
}  // namespace tutti::test
