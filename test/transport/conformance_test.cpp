// Conformance suite for the channels of every transport that joined.h lists, one step at a time.
#include <cstring>

#include "transport/joined.h"

namespace tutti::test {
namespace {

// Sends by building in the channel's memory; the caller has made sure that there is room.
void build(Sender& sender, const Tag& tag, const Buffer& data) {
    std::byte* place = sender.reserve(data.size());
    REQUIRE(place != nullptr);
    if (!data.empty()) std::memcpy(place, data.data(), data.size());
    sender.commit(tag, data.size());
}

// Waits for the next message and checks it; leaves it unreleased.
void expect(Duo& duo, Receiver& receiver, const Tag& tag, const Buffer& data) {
    Receiver::PeekedMessage message;
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        message = receiver.peek(tag, data.size());
        return message.data != nullptr;
    }));
    REQUIRE(message.tag == tag);
    REQUIRE((data.empty() || std::memcmp(message.data, data.data(), data.size()) == 0));
}

bool room(Duo& duo, Sender& sender, std::size_t bytes) {
    return eventually({&duo.a, &duo.b}, [&] { return sender.reserve(bytes) != nullptr; });
}

std::vector<std::size_t> interesting_sizes(std::size_t most) {
    std::vector<std::size_t> sizes{0, 1, 7, 23, 24, 25, 64, 4095, 4096, 4097, 65'537};
    sizes.push_back(most - 1);
    sizes.push_back(most);
    return sizes;
}

TEST_CASE("channel: delivers every size in order, built or pushed, wanted or not") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const auto sizes = interesting_sizes(duo.a.transport->capabilities().max_message_bytes);
            uint64_t number = 0;
            for (const bool pushed : {false, true}) {
                for (const bool offered : {false, true}) {
                    for (const std::size_t bytes : sizes) {
                        INFO("bytes " << bytes << " pushed " << pushed << " offered " << offered);
                        const Tag tag = make_tag(++number);
                        const Buffer data = pattern(bytes, number);
                        Buffer wanted(bytes);
                        if (offered) lane.receiver->offer(tag, wanted.data(), bytes);
                        if (pushed) {
                            REQUIRE(eventually({&duo.a, &duo.b},
                                               [&] { return lane.sender->can_push(); }));
                            lane.sender->push(tag, data.data(), bytes);
                        } else {
                            REQUIRE(room(duo, *lane.sender, bytes));
                            build(*lane.sender, tag, data);
                        }
                        expect(duo, *lane.receiver, tag, data);
                        lane.receiver->release();
                        REQUIRE(
                            eventually({&duo.a, &duo.b}, [&] { return lane.sender->drained(); }));
                    }
                }
            }
        }
}

TEST_CASE("channel: stays first in, first out when sends are mixed and ahead of the reader") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const uint64_t ahead = 2;  // every transport gives at least two credits
            std::vector<Buffer> sent;
            for (uint64_t i = 0; i < 40; ++i) {
                sent.push_back(pattern(i * 211 % 9000, i));
                REQUIRE(room(duo, *lane.sender, sent.back().size()));
                if (i % 3 == 0)
                    build(*lane.sender, make_tag(i), sent.back());
                else
                    lane.sender->push(make_tag(i), sent.back().data(), sent.back().size());
                if (i + 1 < ahead) continue;
                const uint64_t read = i + 1 - ahead;
                expect(duo, *lane.receiver, make_tag(read), sent[read]);
                lane.receiver->release();
            }
            REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->drained(); }));
        }
}

TEST_CASE("channel: refuses memory when its credits are used up and gives it again afterwards") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const uint32_t credits = duo.a.transport->capabilities().credits;
            REQUIRE(credits >= 2);
            const Buffer data = pattern(100, 1);
            for (uint32_t i = 0; i < credits; ++i) {
                REQUIRE(room(duo, *lane.sender, data.size()));
                build(*lane.sender, make_tag(i), data);
            }
            for (int i = 0; i < 100; ++i) {
                duo.a.turn();
                duo.b.turn();
                REQUIRE(lane.sender->reserve(data.size()) == nullptr);
                REQUIRE_FALSE(lane.sender->can_push());
            }
            expect(duo, *lane.receiver, make_tag(0), data);
            lane.receiver->release();
            REQUIRE(room(duo, *lane.sender, data.size()));
            std::byte* again = lane.sender->reserve(data.size());
            REQUIRE(again == lane.sender->reserve(data.size()));
        }
}

TEST_CASE("channel: drops messages of earlier epochs and shows those of other calls") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const Buffer old_data = pattern(50, 1), data = pattern(5000, 2);
            for (uint64_t i = 0; i < 3 * duo.a.transport->capabilities().credits; ++i) {
                REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                    // The receiver drops old messages, and so returns their credits.
                    const auto message = lane.receiver->peek(make_tag(1, 2), data.size());
                    return message.data == nullptr &&
                           lane.sender->reserve(old_data.size()) != nullptr;
                }));
                build(*lane.sender, make_tag(i, 1), old_data);
            }
            REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                return lane.receiver->peek(make_tag(1, 2), data.size()).data == nullptr &&
                       lane.sender->reserve(data.size()) != nullptr;
            }));
            build(*lane.sender, make_tag(1, 2), data);
            expect(duo, *lane.receiver, make_tag(1, 2), data);
            lane.receiver->release();

            Tag other = make_tag(2, 2);
            other.count += 1;
            REQUIRE(room(duo, *lane.sender, data.size()));
            build(*lane.sender, other, data);
            Receiver::PeekedMessage message;
            REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                message = lane.receiver->peek(make_tag(2, 2), 10);
                return message.data != nullptr;
            }));
            REQUIRE(message.tag == other);
            lane.receiver->release();
            REQUIRE(room(duo, *lane.sender, data.size()));
        }
}

TEST_CASE("channel: goes on while another lane is full and unread") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto full = duo.open(3);
            auto busy = duo.open(4);
            const Buffer large = pattern(duo.a.transport->capabilities().max_message_bytes, 9);
            for (uint32_t i = 0; i < duo.a.transport->capabilities().credits; ++i) {
                REQUIRE(room(duo, *full.sender, large.size()));
                build(*full.sender, make_tag(i), large);
            }
            for (uint64_t i = 0; i < 50; ++i) {
                REQUIRE(room(duo, *busy.sender, large.size()));
                build(*busy.sender, make_tag(i), large);
                expect(duo, *busy.receiver, make_tag(i), large);
                busy.receiver->release();
            }
            expect(duo, *full.receiver, make_tag(0), large);
        }
}

TEST_CASE("channel: forgets what was reserved, offered or pushed when it is cancelled") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const Buffer data = pattern(3000, 1);
            REQUIRE(room(duo, *lane.sender, 100));
            lane.sender->cancel();

            Buffer wanted(data.size(), std::byte{0x55});
            const Buffer untouched = wanted;
            lane.receiver->offer(make_tag(1), wanted.data(), wanted.size());
            lane.receiver->cancel();
            {
                Buffer dying = data;
                REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->can_push(); }));
                lane.sender->push(make_tag(1), dying.data(), dying.size());
                lane.sender->cancel();
                std::fill(dying.begin(), dying.end(), std::byte{0xff});
            }
            REQUIRE(lane.sender->drained());
            // In the next epoch the cancelled message, if it travelled, is stale.
            REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                return lane.receiver->peek(make_tag(1, 2), data.size()).data == nullptr &&
                       lane.sender->reserve(data.size()) != nullptr;
            }));
            build(*lane.sender, make_tag(1, 2), data);
            expect(duo, *lane.receiver, make_tag(1, 2), data);
            REQUIRE(wanted == untouched);
        }
}

TEST_CASE("channel: can be read to its end after the peer closed, and is then lost") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            auto back = Duo::open(duo.b, duo.a, 0);
            const Buffer data = pattern(9000, 4);
            for (uint64_t i = 0; i < 2; ++i) {
                REQUIRE(room(duo, *lane.sender, data.size()));
                build(*lane.sender, make_tag(i), data);
            }
            // A transport whose receiver must take part in the transfer gets its turns from here.
            std::atomic<bool> closed{false};
            std::thread turner([&] {
                while (!closed) {
                    duo.b.turn();
                    std::this_thread::yield();
                }
            });
            duo.a.transport->close(Deadline::after_ms(patience_ms));
            closed = true;
            turner.join();
            REQUIRE(eventually({&duo.b}, [&] { return back.sender->health() == Code::peer_lost; }));
            for (uint64_t i = 0; i < 2; ++i) {
                REQUIRE(lane.receiver->health() == Code::ok);
                expect(duo, *lane.receiver, make_tag(i), data);
                lane.receiver->release();
            }
            REQUIRE(
                eventually({&duo.b}, [&] { return lane.receiver->health() == Code::peer_lost; }));
            REQUIRE(duo.b.sink.lost().empty());
        }
}

TEST_CASE("transport: carries memory that it was told of, once or twice, as any other") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            auto lane = duo.open(0);
            const std::size_t bytes = duo.a.transport->capabilities().max_message_bytes;
            Buffer data = pattern(bytes, 5), wanted(bytes);
            for (int twice = 0; twice < 2; ++twice)
                REQUIRE(duo.a.transport->add_memory(data.data(), bytes));
            REQUIRE(duo.b.transport->add_memory(wanted.data(), bytes));
            duo.a.transport->remove_memory(data.data(), bytes);
            lane.receiver->offer(make_tag(1), wanted.data(), bytes);
            REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->can_push(); }));
            lane.sender->push(make_tag(1), data.data(), bytes);
            expect(duo, *lane.receiver, make_tag(1), data);
            lane.receiver->release();
            REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->drained(); }));
            duo.b.transport->remove_memory(wanted.data(), bytes);
            duo.a.transport->remove_memory(data.data(), bytes);
        }
}

TEST_CASE("transport: opens lanes both ways at once") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            REQUIRE(duo.a.transport->may_reach(duo.b.address));
            std::atomic<int> opened{0};
            const auto open_many = [&](TestEndpoint& from, TestEndpoint& to) {
                for (uint16_t lane = 0; lane < 8; ++lane)
                    if (from.transport->open({.peer = to.address.rank, .comm = 1, .lane = lane},
                                             to.address, Deadline::after_ms(patience_ms)))
                        ++opened;
            };
            std::thread other([&] { open_many(duo.b, duo.a); });
            open_many(duo.a, duo.b);
            other.join();
            REQUIRE(opened == 16);
            for (uint16_t lane = 0; lane < 8; ++lane) {
                REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                    return duo.a.sink.take({.peer = 1, .comm = 1, .lane = lane}) != nullptr;
                }));
                REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                    return duo.b.sink.take({.peer = 0, .comm = 1, .lane = lane}) != nullptr;
                }));
            }
        }
}

TEST_CASE("transport: refuses a peer on another host or of an unknown name") {
    for (const auto& kind : joined) DYNAMIC_SECTION(kind.name) {
            Duo duo(kind);
            if (duo.a.transport->capabilities().same_host_only) {
                PeerAddress elsewhere = duo.b.address;
                elsewhere.host_id = "another host";
                REQUIRE_FALSE(duo.a.transport->may_reach(elsewhere));
            }
            PeerAddress nowhere = duo.b.address;
            nowhere.address = "tutti-no-such-name";
            const auto refused = duo.a.transport->open({.peer = 1, .comm = 1, .lane = 0}, nowhere,
                                                       Deadline::after_ms(patience_ms));
            REQUIRE_FALSE(refused.has_value());
            REQUIRE(refused.error().code != Code::ok);
            REQUIRE(refused.error().rank == 1);
            REQUIRE(refused.error().message.find("rank 1") != std::string::npos);
        }
}

}  // namespace
}  // namespace tutti::test
