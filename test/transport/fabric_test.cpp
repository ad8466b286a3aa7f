// The fabric's engine over a library that misbehaves, and over peers that do.
#include <random>

#include "transport/all_channels.h"
#include "transport/fake_port.h"
#include "transport/lane_driver.h"
#include "transport/posted/flow_table.h"
#include "wait/shared_wait_deadline.h"

namespace tutti::test {
namespace {

using fabric::Header;
using fabric::Kind;

struct FakeDuo : GoodManners, Duo {
    FakeDuo() : Duo(fake_kind) {}
    FakePort& port(Rank rank) { return *fake_ports[static_cast<std::size_t>(rank)]; }
};

struct Traffic {
    Duo::Lane lane;
    uint64_t sent = 0, got = 0;
    Buffer wanted;
    std::deque<Buffer> pushed;
    static std::size_t bytes(uint64_t number) {
        return number % 5 == 0 ? 9000 + number * 37 % 4000 : number * 61 % 2500;
    }
};

// Sends one message if it can, reads one if there is one. False: what came is wrong.
bool step(Traffic& t, uint64_t messages) {
    if (t.sent < messages && t.lane.sender->can_push()) {
        t.pushed.push_back(pattern(Traffic::bytes(t.sent), t.sent));
        const Buffer& data = t.pushed.back();
        if (t.sent % 3 == 0) {
            std::byte* place = t.lane.sender->reserve(data.size());
            if (!place) return false;
            std::copy(data.begin(), data.end(), place);
            t.lane.sender->commit(make_tag(t.sent), data.size());
        } else {
            t.lane.sender->push(make_tag(t.sent), data.data(), data.size());
        }
        ++t.sent;
    }
    if (t.got == t.sent) return true;
    const std::size_t bytes = Traffic::bytes(t.got);
    if (t.got % 2 == 0 && t.wanted.empty()) {
        t.wanted.resize(bytes + 1);
        t.lane.receiver->offer(make_tag(t.got), t.wanted.data(), bytes);
    }
    const auto message = t.lane.receiver->peek(make_tag(t.got), bytes);
    if (!message.data) return true;
    const Buffer expected = pattern(bytes, t.got);
    const bool right = message.tag == make_tag(t.got) &&
                       std::equal(expected.begin(), expected.end(), message.data);
    t.lane.receiver->release();
    t.wanted.clear();
    ++t.got;
    return right;
}

TEST_CASE("fabric: keeps every byte when messages overtake each other and the library is busy") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    FakeDuo duo;
    seed_draws(seed + 1);
    std::vector<Traffic> lanes(3);
    for (std::size_t i = 0; i < lanes.size(); ++i)
        lanes[i].lane = i == 1 ? Duo::open(duo.b, duo.a, 1) : duo.open(static_cast<uint16_t>(i));
    manners = {.busy = 30, .slow = 40, .pieces = 50, .reorder = true};
    constexpr uint64_t messages = 600;
    const auto finished = [&] {
        return std::all_of(lanes.begin(), lanes.end(), [](Traffic& t) {
            return t.got == messages && t.lane.sender->drained();
        });
    };
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        for (Traffic& t : lanes) REQUIRE(step(t, messages));
        return finished();
    }));
    REQUIRE((duo.a.sink.lost().empty() && duo.b.sink.lost().empty()));
    for (const FakePort* port : fake_ports) REQUIRE(port->fetched_late() == 0);
}

TEST_CASE("fabric: keeps every byte when several threads drive the lanes of one port") {
    const GoodManners reset;
    manners = {.slow = 20, .reorder = true};
    drive_lanes(fake_kind, 200'000, {1000, 400, 50});
}

/// Messages from a device's memory and the host's in turn, each offered a place on a device when
/// its turn comes; how many lay there.
int pass_on_devices(FakeDuo& duo, uint64_t messages) {
    auto lane = duo.open(0);
    REQUIRE(lane.sender->takes_device());
    std::deque<Buffer> pushed;
    Buffer wanted(10'000);
    uint64_t sent = 0, got = 0;
    int in_place = 0;
    lane.receiver->offer_on_device(make_tag(0), wanted.data(), 1500);
    bool offered = true;
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        const auto bytes = [](uint64_t number) { return 1500 + number * 997 % 8000; };
        while (sent < messages && lane.sender->can_push()) {
            pushed.push_back(pattern(bytes(sent), sent));
            const Buffer& data = pushed.back();
            if (sent % 3 != 2)
                lane.sender->push_from_device(make_tag(sent), data.data(), data.size());
            else
                lane.sender->push(make_tag(sent), data.data(), data.size());
            ++sent;
        }
        const Tag tag = make_tag(got);
        if (got < messages && !std::exchange(offered, true))
            lane.receiver->offer_on_device(tag, wanted.data(), bytes(got));
        const auto message = lane.receiver->peek(tag, bytes(got));
        if (message.data) {
            const Buffer expected = pattern(bytes(got), got);
            REQUIRE(std::equal(expected.begin(), expected.end(), message.data));
            in_place += message.data == wanted.data();
            lane.receiver->release();
            offered = false;
            ++got;
        }
        return got == messages && lane.sender->drained();
    }));
    return in_place;
}

TEST_CASE("fabric: a message from a device lies where it is wanted, though it came early") {
    FakeDuo duo;
    manners = {.slow = 30, .takes_device = true};
    // From the host, what comes with its header lies in the host's memory.
    const int in_place = pass_on_devices(duo, 300);
    REQUIRE(in_place >= 200);
    REQUIRE(in_place == duo.port(1).to_device());
}

TEST_CASE("fabric: messages of devices are kept when they overtake each other") {
    const auto seed = std::random_device{}() % 1'000'000;
    INFO("seed " << seed);
    FakeDuo duo;
    seed_draws(seed + 1);
    manners = {.busy = 30, .slow = 40, .pieces = 20, .reorder = true, .takes_device = true};
    const int in_place = pass_on_devices(duo, 600);
    REQUIRE(in_place > 0);
    REQUIRE(in_place == duo.port(1).to_device());
}

TEST_CASE("fabric: what waits for a place is dropped with its channel, and its sender told") {
    FakeDuo duo;
    manners.takes_device = true;
    auto lane = duo.open(0);
    const Buffer data = pattern(9000, 1);
    Buffer wanted(9000);
    lane.receiver->offer_on_device(make_tag(0), wanted.data(), 9000);
    for (uint64_t i = 0; lane.sender->can_push(); ++i)
        lane.sender->push_from_device(make_tag(i), data.data(), data.size());
    for (int i = 0; i < 20; ++i)
        for (TestEndpoint* end : {&duo.a, &duo.b}) end->turn();
    REQUIRE_FALSE(lane.sender->drained());
    lane.receiver.reset();
    REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->drained(); }));
    REQUIRE((duo.a.sink.lost().empty() && duo.b.sink.lost().empty()));
}

TEST_CASE("fabric: what lies on a device stays there when an offer is taken back") {
    FakeDuo duo;
    manners.takes_device = true;
    auto lane = duo.open(0);
    const Buffer data = pattern(9000, 1);
    Buffer wanted(9000);
    lane.receiver->offer_on_device(make_tag(0), wanted.data(), 9000);
    lane.sender->push_from_device(make_tag(0), data.data(), data.size());
    REQUIRE(eventually({&duo.a, &duo.b}, [&] { return lane.sender->drained(); }));
    lane.receiver->cancel();
    REQUIRE(lane.receiver->peek(make_tag(0), 9000).data == wanted.data());
    REQUIRE(wanted == data);
}

TEST_CASE("fabric: what a failed call had pushed from a device is waited for") {
    FakeDuo duo;
    manners.takes_device = true;
    auto lane = duo.open(0);
    const Buffer data = pattern(9000, 1);
    for (uint64_t i = 0; lane.sender->can_push(); ++i)
        lane.sender->push_from_device(make_tag(i), data.data(), data.size());
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over) duo.b.turn();
    });
    lane.sender->cancel();
    over = true;
    other.join();
    REQUIRE(duo.a.sink.lost().empty());
    const auto message = lane.receiver->peek(make_tag(0), 9000);
    REQUIRE((message.data && std::equal(data.begin(), data.end(), message.data)));
}

TEST_CASE("fabric: a peer that takes nothing holds up no other") {
    const GoodManners reset;
    TestEndpoint here(fake_kind, 0, 3), there(fake_kind, 1, 3), deaf(fake_kind, 2, 3);
    manners.no_room_for = 2;
    const ChannelId to_deaf{.peer = 2, .comm = 7, .lane = 0}, to_there{.peer = 1, .comm = 7};
    const auto waits = here.transport->open(to_deaf, deaf.address, Deadline{});
    const auto sends = here.transport->open(to_there, there.address, Deadline{});
    REQUIRE((waits && sends));
    const Buffer data = pattern(100, 1);
    std::unique_ptr<Receiver> receiver, late;
    for (uint64_t i = 1; i <= 20; ++i) {
        REQUIRE(eventually({&here, &there}, [&] { return (*sends)->can_push(); }));
        (*sends)->push(make_tag(i), data.data(), data.size());
        REQUIRE(eventually({&here, &there}, [&] {
            if (!receiver) receiver = there.sink.take({.peer = 0, .comm = 7, .lane = 0});
            return receiver && receiver->peek(make_tag(i), data.size()).data;
        }));
        receiver->release();
    }
    manners.no_room_for = nobody;
    REQUIRE(eventually({&here, &deaf}, [&] {
        late = deaf.sink.take({.peer = 0, .comm = 7, .lane = 0});
        return late != nullptr;
    }));
}

TEST_CASE("fabric: what the library woke it with wakes it once") {
    const GoodManners reset;
    const UniqueFd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    manners.wake_fd = bell.get();
    TestEndpoint here(fake_kind, 0, 2);
    eventfd_write(bell.get(), 1);
    CHECK(here.data.poll(0) == 1);
    CHECK(here.data.poll(0) == 0);
}

/// Rank 1 wants a payload that it cannot get, and with it loses rank 0: told once.
void lose_a_payload(FakeDuo& duo, Duo::Lane& lane) {
    const Buffer data = pattern(50'000, 1);
    Buffer wanted(data.size());
    lane.receiver->offer(make_tag(1), wanted.data(), wanted.size());
    lane.sender->push(make_tag(1), data.data(), data.size());
    REQUIRE(
        eventually({&duo.a, &duo.b}, [&] { return lane.receiver->health() == Code::peer_lost; }));
    REQUIRE(lane.receiver->peek(make_tag(1), data.size()).data == nullptr);
    lane.receiver->cancel();
    for (int i = 0; i < 20; ++i) duo.b.turn();
    REQUIRE(duo.b.sink.lost().size() == 1);
    lane.sender->cancel();  // its memory ends here
}

TEST_CASE("fabric: a payload that cannot be fetched is the peer's loss, told once") {
    FakeDuo duo;
    auto lane = duo.open(0);
    manners.fetch_fails = true;
    lose_a_payload(duo, lane);
    REQUIRE(duo.b.sink.lost()[0].first == 0);
}

TEST_CASE("fabric: what a rank lacks to go on with another is its own fault, and told first") {
    FakeDuo duo;
    auto lane = duo.open(0);
    manners.cannot_register = true;
    lose_a_payload(duo, lane);
    REQUIRE(duo.b.sink.lost()[0].first == 1);
    REQUIRE(duo.b.sink.lost()[0].second.find("it cannot continue with rank 0: see `ulimit -l`") !=
            std::string::npos);
}

TEST_CASE("fabric: waits, but not for ever, for memory that the library has") {
    FakeDuo duo;
    auto lane = duo.open(0);
    manners.never_sent = true;
    const Buffer data = pattern(50'000, 1);
    lane.sender->push(make_tag(1), data.data(), data.size());
    REQUIRE_FALSE(lane.sender->drained());
    const int64_t start_ns = now_ns();
    lane.sender->cancel();
    REQUIRE(now_ns() - start_ns >= 200'000'000);
    REQUIRE(lane.sender->health() == Code::peer_lost);
    REQUIRE(duo.a.sink.lost().size() == 1);
    REQUIRE(duo.a.sink.lost()[0].second.find("200 ms") != std::string::npos);
}

TEST_CASE("fabric: waits for no memory where the library takes a copy instead") {
    FakeDuo duo;
    auto lane = duo.open(0);
    fake_patience_ms = 60'000;
    manners.moves = true;
    const Buffer data = pattern(50'000, 1);
    Buffer callers = data;
    lane.sender->push(make_tag(1), callers.data(), callers.size());
    REQUIRE_FALSE(lane.sender->drained());
    lane.sender->cancel();
    REQUIRE(lane.sender->health() == Code::ok);
    std::fill(callers.begin(), callers.end(), std::byte{});

    // A receiver that takes part later gets the message, and keeps it when it cancels as well.
    Buffer wanted(data.size());
    manners.slow = 100;
    lane.receiver->offer(make_tag(1), wanted.data(), wanted.size());
    REQUIRE(eventually({&duo.b}, [&] { return wanted == data; }));
    lane.receiver->cancel();
    std::fill(wanted.begin(), wanted.end(), std::byte{});
    manners.slow = 0;
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        const auto message = lane.receiver->peek(make_tag(1), data.size());
        return message.data && message.data != wanted.data() &&
               std::equal(data.begin(), data.end(), message.data);
    }));
    lane.receiver->release();
    REQUIRE(wanted == Buffer(data.size()));
}

// Else a thread that looks before the peer is said to be lost reports a success.
TEST_CASE("fabric: what was under way to a peer that is lost does not count as sent") {
    FakeDuo duo;
    auto lane = duo.open(0);
    manners.never_sent = true;
    const Buffer data = pattern(50'000, 1);
    for (uint32_t i = 1; i <= 3; ++i) lane.sender->push(make_tag(i), data.data(), data.size());
    duo.a.transport->peer_gone(1);
    // Its last messages have a moment to come in.
    REQUIRE(eventually({&duo.a}, [&] { return lane.sender->health() == Code::peer_lost; }));
    REQUIRE(lane.sender->drained());
    REQUIRE_FALSE(lane.sender->all_sent());
    lane.sender->cancel();  // which waits for nothing
}

TEST_CASE("fabric: nor does what the library refuses, as the peer is about to be lost") {
    FakeDuo duo;
    auto lane = duo.open(0);
    manners.send_fails = true;
    const Buffer data = pattern(100, 1);
    lane.sender->push(make_tag(1), data.data(), data.size());
    REQUIRE_FALSE(lane.sender->all_sent());
    REQUIRE(eventually({&duo.a}, [&] { return lane.sender->health() == Code::peer_lost; }));
    REQUIRE_FALSE(lane.sender->all_sent());
    REQUIRE(lane.sender->drained());
}

TEST_CASE("fabric: waits no longer for memory when others know that the peer is dead") {
    const GoodManners reset;
    fake_patience_ms = 60'000;
    Duo duo(fake_kind);
    auto lane = duo.open(0);
    manners.never_sent = true;
    const Buffer data = pattern(50'000, 1);
    lane.sender->push(make_tag(1), data.data(), data.size());
    duo.a.transport->peer_gone(3);  // a stranger
    REQUIRE(lane.sender->health() == Code::ok);
    // The first waits inside for what never comes.
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        duo.a.transport->peer_gone(1);
    });
    lane.sender->cancel();
    other.join();
    REQUIRE(lane.sender->health() == Code::peer_lost);
    REQUIRE(duo.a.sink.lost().empty());
}

TEST_CASE("fabric: waits for memory that many peers have as long as for one's, if told together") {
    const GoodManners reset;
    constexpr Rank ranks = 21;
    constexpr int64_t one_ns = 1'500'000'000;
    fake_patience_ms = one_ns / 1'000'000;
    std::vector<std::unique_ptr<TestEndpoint>> ends;
    for (Rank r = 0; r < ranks; ++r)
        ends.push_back(std::make_unique<TestEndpoint>(fake_kind, r, ranks));
    const Buffer data = pattern(50'000, 1);
    std::vector<std::unique_ptr<Sender>> senders;
    for (Rank r = 1; r < ranks; ++r) {
        TestEndpoint& peer = *ends[static_cast<std::size_t>(r)];
        const ChannelId to_peer{.peer = r, .comm = 7, .lane = 0};
        auto sender = ends[0]->transport->open(to_peer, peer.address, Deadline{});
        REQUIRE(sender);
        std::unique_ptr<Receiver> receiver;
        REQUIRE(eventually({ends[0].get(), &peer}, [&] {
            receiver = peer.sink.take({.peer = 0, .comm = 7, .lane = 0});
            return receiver != nullptr;
        }));
        senders.push_back(*std::move(sender));
    }
    manners.never_sent = true;
    for (const auto& sender : senders) sender->push(make_tag(1), data.data(), data.size());
    const int64_t start_ns = now_ns();
    {
        const SharedWaitDeadline together;
        for (const auto& sender : senders) sender->cancel();
    }
    const int64_t took_ns = now_ns() - start_ns;
    REQUIRE(took_ns >= one_ns);
    REQUIRE(took_ns < 10 * one_ns);  // one after the other: 20 times
    REQUIRE(ends[0]->sink.lost().size() == senders.size());
}

TEST_CASE("fabric: others go on while a failed operation waits for memory") {
    const GoodManners reset;
    fake_patience_ms = 60'000;
    TestEndpoint here(fake_kind, 0, 3), hung(fake_kind, 1, 3), there(fake_kind, 2, 3);
    const ChannelId to_hung{.peer = 1, .comm = 7, .lane = 0}, to_there{.peer = 2, .comm = 8};
    const auto stuck = here.transport->open(to_hung, hung.address, Deadline{});
    REQUIRE(stuck);
    manners.never_sent = true;
    const Buffer data = pattern(50'000, 1);
    (*stuck)->push(make_tag(1), data.data(), data.size());
    std::unique_ptr<Receiver> ignored;
    REQUIRE(eventually({&here, &hung}, [&] {
        ignored = hung.sink.take({.peer = 0, .comm = 7, .lane = 0});
        return ignored != nullptr;
    }));
    std::atomic<bool> ended{false};
    std::thread waits([&] {
        (*stuck)->cancel();
        ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto sends = here.transport->open(to_there, there.address, Deadline{});
    const bool meanwhile = !ended;
    here.transport->peer_gone(1);
    waits.join();
    REQUIRE(sends);
    REQUIRE(meanwhile);
}

// A header as rank 0 would send it to rank 1.
Header header_to(const TestEndpoint& to, Kind kind) {
    const auto address = fabric::decode_address("fake", "1.0", to.address.address);
    REQUIRE(address);
    Header out;
    out.magic = Header::magic_of(kind);
    out.sender = 0;
    out.nonce = address->nonce;
    out.comm = 7;
    return out;
}

struct Violation {
    const char* cause;
    void (*change)(Header& header, Buffer& payload);
};

TEST_CASE("fabric: loses the peer, and names the rule, when a message breaks one") {
    const Violation violations[] = {
        {"at most 262144", [](Header&, Buffer& p) { p.resize(262'145); }},
        {"credits allow", [](Header& h, Buffer&) { h.position = 8; }},
        {"credits allow", [](Header& h, Buffer&) { h.position = 0xffffffff; }},
        {"did not owe", [](Header& h, Buffer&) { h.credits = 1; }},
        {"did not owe",
         [](Header& h, Buffer&) {
             h.magic = Header::magic_of(Kind::credit);
             h.credits = 65535;
             h.lane = 5;
         }},
        {"hello is malformed",
         [](Header& h, Buffer& p) {
             h.magic = Header::magic_of(Kind::hello);
             p.resize(30, std::byte{0xff});
         }},
        {"hello has no address",
         [](Header& h, Buffer&) { h.magic = Header::magic_of(Kind::hello); }},
    };
    for (const Violation& violation : violations) {
        INFO(violation.cause);
        FakeDuo duo;
        auto lane = duo.open(0);
        Header header = header_to(duo.b, Kind::data);
        Buffer payload;
        violation.change(header, payload);
        header.bytes = static_cast<uint32_t>(payload.size());
        duo.port(1).inject(header, payload);
        REQUIRE(eventually({&duo.b}, [&] { return !duo.b.sink.lost().empty(); }));
        INFO(duo.b.sink.lost()[0].second);
        REQUIRE(duo.b.sink.lost()[0].second.find(violation.cause) != std::string::npos);
        REQUIRE(lane.receiver->health() == Code::peer_lost);
    }
}

TEST_CASE("fabric: the same place twice, and a size that is not the call's") {
    for (const bool twice : {true, false}) {
        FakeDuo duo;
        auto lane = duo.open(0);
        Header header = header_to(duo.b, Kind::data);
        header.tag = make_tag(1);
        header.bytes = 100;
        for (int i = 0; i < (twice ? 2 : 1); ++i) duo.port(1).inject(header, Buffer(100));
        REQUIRE(eventually({&duo.b}, [&] {
            if (!twice) REQUIRE(lane.receiver->peek(make_tag(1), 101).data == nullptr);
            duo.b.turn();
            return !duo.b.sink.lost().empty();
        }));
        const char* cause = twice ? "credits allow" : "100 bytes where its call has 101";
        REQUIRE(duo.b.sink.lost()[0].second.find(cause) != std::string::npos);
    }
}

TEST_CASE("fabric: does not hear those who have not read its address") {
    FakeDuo duo;
    auto lane = duo.open(0);
    const Header right = header_to(duo.b, Kind::bye);
    Header header = right;
    header.nonce += 1;
    duo.port(1).inject(header);
    header = right;
    header.sender = 2;
    duo.port(1).inject(header);
    header = right;
    header.magic = 0x12345678;
    duo.port(1).inject(header);
    header = right;
    header.bytes = 1;
    duo.port(1).inject(header);
    const Buffer data = pattern(300, 1);
    lane.sender->push(make_tag(1), data.data(), data.size());
    REQUIRE(eventually({&duo.a, &duo.b}, [&] {
        return lane.receiver->peek(make_tag(1), data.size()).data != nullptr;
    }));
    lane.receiver->release();
    for (int i = 0; i < 20; ++i) duo.b.turn();
    REQUIRE(lane.receiver->health() == Code::ok);
    REQUIRE(duo.b.sink.lost().empty());
}

TEST_CASE("fabric: refuses a peer whose library has another version, and says which") {
    const GoodManners reset;
    TestEndpoint here(fake_kind, 0, 2);
    fake_version = "1.7";
    TestEndpoint there(fake_kind, 1, 2);
    const auto refused =
        here.transport->open({.peer = 1, .comm = 7, .lane = 0}, there.address, Deadline{});
    REQUIRE_FALSE(refused);
    INFO(refused.error().message);
    REQUIRE(refused.error().rank == 1);
    for (const char* word : {"rank 1", "fake 1.0", "fake 1.7"})
        REQUIRE(refused.error().message.find(word) != std::string::npos);
}

TEST_CASE("fabric: forgets the channels of retired communicators") {
    FakeDuo duo;
    const Buffer data = pattern(100, 1);
    for (uint32_t comm = 1; comm <= max_channels + 50; ++comm) {
        auto sender =
            duo.a.transport->open({.peer = 1, .comm = comm, .lane = 0}, duo.b.address, Deadline{});
        INFO((sender ? "" : sender.error().message));
        REQUIRE(sender);
        (*sender)->push(make_tag(comm), data.data(), data.size());
        std::unique_ptr<Receiver> receiver;
        REQUIRE(eventually({&duo.a, &duo.b}, [&] {
            if (!receiver) receiver = duo.b.sink.take({.peer = 0, .comm = comm, .lane = 0});
            return receiver && receiver->peek(make_tag(comm), data.size()).data;
        }));
        for (TestEndpoint* end : {&duo.a, &duo.b}) end->transport->retire(comm);
        if (comm % 2 == 0) receiver.reset();
        sender->reset();
        receiver.reset();
    }
    REQUIRE((duo.a.sink.lost().empty() && duo.b.sink.lost().empty()));
}

TEST_CASE("fabric: two ranks may open all their channels, whoever hears of them first") {
    for (const bool hears : {false, true}) {
        FakeDuo duo;
        open_all_channels(duo, max_channels, hears);
    }
}

}  // namespace
}  // namespace tutti::test
