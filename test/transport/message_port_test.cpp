// Message ports over plain messengers, and what these ports are made of.
#include "fabric/messages/port.h"

#include <set>

#include "transport/plain/plain.h"
#include "transport/ports.h"

namespace tutti::test {
namespace {

using fabric::Culprit;
using fabric::MessagePeer;
using fabric::MessagePeers;
using fabric::Prefix;
using fabric::Progress;
using PrefixKind = Prefix::Kind;

/// Good manners, before and after.
struct PlainReset {
    PlainReset() { plain_manners = {}; }
    ~PlainReset() { plain_manners = {}; }
};

auto plain() {
    return [](Rank rank) { return make_plain_factory(rank, 3); };
}

constexpr std::size_t sizes[] = {0, 1, 100, 2000, 2001, 19'999, 20'000, 20'001, 1'000'000};

void exchange_all(PortDuo& duo) {
    for (const std::size_t bytes : sizes) {
        exchange(duo, duo.a, duo.b, 1, bytes);
        exchange(duo, duo.b, duo.a, 0, bytes);
    }
}

/// Sends so much that it is announced, and waits until the peer has heard of it.
void announce(PortDuo& duo, uint64_t number, const Buffer& data, void* context) {
    const std::size_t heard = duo.b.log.messages.size() + 1;
    REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, number, data, context) == Progress::pending);
    REQUIRE(turning({&duo.a, &duo.b}, [&] { return duo.b.log.messages.size() == heard; }));
}

// ---- parts -----------------------------------------------------------------------------------

struct Numbered {
    uint64_t number = 0;
    int value = 0;
};

TEST_CASE("message slots: a number that was given back finds nothing, also when it is reused") {
    fabric::Slots<Numbered> slots;
    Numbered& one = slots.take();
    Numbered& two = slots.take();
    const uint64_t first = one.number, second = two.number;
    REQUIRE(first != second);
    one.value = 1;
    REQUIRE(slots.find(first) == &one);
    slots.give(one);
    REQUIRE(slots.taken() == 1);
    REQUIRE(slots.find(first) == nullptr);
    Numbered& again = slots.take();
    REQUIRE(&again == &one);
    REQUIRE(again.value == 0);
    REQUIRE(again.number != first);
    REQUIRE(slots.find(first) == nullptr);
    REQUIRE(slots.find(second) == &two);
    REQUIRE(slots.find(99) == nullptr);
}

TEST_CASE("message slots: each may give back, and others stay where they are") {
    fabric::Slots<Numbered> slots;
    std::vector<Numbered*> taken;
    for (int i = 0; i < 100; ++i) {
        taken.push_back(&slots.take());
        taken.back()->value = i;
    }
    slots.each([&](Numbered& one) {
        if (one.value % 2 == 0) slots.give(one);
    });
    REQUIRE(slots.taken() == 50);
    for (int i = 1; i < 100; i += 2) REQUIRE(taken[static_cast<std::size_t>(i)]->value == i);
}

TEST_CASE("message queue: keeps the order, through any number of items") {
    fabric::Queue<int> queue;
    int in = 0, out = 0;
    for (int round = 0; round < 50; ++round) {
        for (int i = 0; i < 100; ++i) queue.push(in++);
        for (int i = 0; i < 95; ++i) REQUIRE(queue.pop() == out++);
    }
    REQUIRE(queue.size() == 250);
    int seen = out;
    queue.remove_if([&](int item) {
        REQUIRE(item == seen++);
        return item % 2 == 0;
    });
    REQUIRE(queue.size() == 125);
    REQUIRE(queue.pop() == out + (out % 2 == 0 ? 1 : 0));
    queue.remove_if([&](int) {
        queue.clear();
        return true;
    });
    REQUIRE(queue.empty());
}

TEST_CASE("message prefix: what no port would send is not believed") {
    constexpr std::size_t eager = 32 * 1024;
    const auto prefix = [](PrefixKind kind, uint64_t bytes) {
        Prefix p;
        p.kind = kind;
        p.bytes = bytes;
        return p;
    };
    REQUIRE(plausible(prefix(PrefixKind::eager, 5), fabric::envelope_bytes + 5, eager));
    REQUIRE_FALSE(plausible(prefix(PrefixKind::eager, 6), fabric::envelope_bytes + 5, eager));
    REQUIRE_FALSE(
        plausible(prefix(PrefixKind::eager, ~uint64_t{0}), fabric::envelope_bytes - 1, eager));
    REQUIRE_FALSE(plausible(prefix(PrefixKind::eager, 0), sizeof(Prefix), eager));
    REQUIRE(plausible(prefix(PrefixKind::announce, 40'000), fabric::envelope_bytes + 16, eager));
    REQUIRE_FALSE(plausible(prefix(PrefixKind::announce, 10), fabric::envelope_bytes + 16, eager));
    REQUIRE_FALSE(
        plausible(prefix(PrefixKind::announce, 40'000), fabric::envelope_bytes + 5000, eager));
    REQUIRE(plausible(prefix(PrefixKind::grant, 7), sizeof(Prefix), eager));
    REQUIRE_FALSE(plausible(prefix(PrefixKind::drop, 7), sizeof(Prefix) + 1, eager));
    REQUIRE_FALSE(plausible(prefix(static_cast<PrefixKind>(3), 0), sizeof(Prefix), eager));
}

TEST_CASE("message peers: one port of a rank is present, and operations keep the others") {
    MessagePeers here(0, 3), there(1, 3);
    REQUIRE(here.port() != there.port());
    REQUIRE(here.find(1) == nullptr);
    REQUIRE(here.find(-1) == nullptr);
    REQUIRE(here.find(3) == nullptr);
    MessagePeer& peer = here.find_or_add(1, there.port());
    REQUIRE(&here.find_or_add(1, there.port()) == &peer);
    REQUIRE(here.find(1) == &peer);
    peer.gone = true;
    MessagePeer& newer = here.find_or_add(1, there.port());
    REQUIRE(&newer != &peer);
    REQUIRE(here.find(1) == &newer);
    REQUIRE(&here.find_or_add(1, there.port() + 1) != &newer);
    REQUIRE(peer.rank == 1);
}

TEST_CASE("message peers: hear nobody but the job's present ports") {
    MessagePeers here(0, 3), there(1, 3);
    MessagePeer me;
    me.port = here.port();
    const Prefix right = there.prefix_to(me, Prefix::Kind::ping, 0, 0);
    MessagePeer* const peer = here.sender_of(right);  // it has written first
    REQUIRE(peer != nullptr);
    REQUIRE(peer->rank == 1);
    REQUIRE(here.sender_of(right) == peer);
    Prefix wrong = right;
    wrong.target += 1;
    REQUIRE(here.sender_of(wrong) == nullptr);
    wrong = right;
    wrong.source += 1;
    REQUIRE(here.sender_of(wrong) == nullptr);
    for (const Rank rank : {-1, 3}) {
        wrong = right;
        wrong.source_rank = rank;
        REQUIRE(here.sender_of(wrong) == nullptr);
    }
    peer->gone = true;
    REQUIRE(here.sender_of(right) == nullptr);
}

TEST_CASE("message buffers: a peer that takes nothing leaves some for the others") {
    LibraryMemory memory(nullptr, "plain");
    fabric::SendBuffers buffers;
    constexpr std::size_t count = 16, bytes = 1000;
    REQUIRE(buffers.allocate(memory, count, bytes));
    MessagePeer slow, other;
    std::set<std::byte*> places;
    std::vector<fabric::StagedMessage*> taken;
    while (fabric::StagedMessage* staged = buffers.take(slow)) {
        std::memset(staged->data, 1, bytes);
        const auto payload =
            reinterpret_cast<std::uintptr_t>(staged->data) + fabric::envelope_bytes;
        REQUIRE(payload % cache_line_bytes == 0);
        places.insert(staged->data);
        taken.push_back(staged);
    }
    REQUIRE(places.size() == count * 3 / 4);
    REQUIRE(buffers.take(other) != nullptr);
    buffers.give(*taken.back());
    REQUIRE(buffers.take(slow) == taken.back());
}

TEST_CASE("message buffers: know what explains that the library has no room") {
    LibraryMemory memory(nullptr, "plain");
    fabric::SendBuffers buffers;
    REQUIRE(buffers.allocate(memory, 4, 100));
    MessagePeer one, other;
    REQUIRE_FALSE(buffers.may_be_full(one));
    buffers.leaves(one);
    REQUIRE(buffers.may_be_full(one));
    REQUIRE_FALSE(buffers.may_be_full(other));
    for (int i = 0; i < 3; ++i) buffers.leaves(one);
    REQUIRE(buffers.may_be_full(other));
    buffers.left(one);
    REQUIRE_FALSE(buffers.may_be_full(other));
    buffers.forget(one);
    REQUIRE_FALSE(buffers.any_leaving());
    buffers.left(one);  // its completion comes although the buffer was forgotten
    REQUIRE_FALSE(buffers.any_leaving());
}

// ---- messages --------------------------------------------------------------------------------

TEST_CASE("message port: carries messages of all sizes, whatever the library can do") {
    const PlainReset reset;
    for (const bool two_pieces : {true, false}) {
        for (const unsigned full : {0u, 2u, 7u}) {
            plain_manners.limits.two_pieces = two_pieces;
            plain_manners.limits.injected_bytes = two_pieces ? 150 : 0;
            plain_manners.full = full;
            INFO(two_pieces << " " << full);
            PortDuo duo(plain());
            exchange_all(duo);
        }
    }
}

TEST_CASE("message port: messages that cross have an endpoint for either way") {
    const PlainReset reset;
    for (const bool second : {true, false}) {
        plain_manners.limits.second = second;
        PortDuo duo(plain());
        const int before = PlainMessenger::came[1];
        const Buffer data = pattern(1000, 1);
        for (const unsigned way : {0u, 1u}) {
            const auto result = duo.a.port->second_path()->send_crossing(
                1, header_of(way).data(), data.data(), data.size(), way);
            REQUIRE(result == Progress::done);
            take(duo, duo.b, way, data);
        }
        REQUIRE(PlainMessenger::came[1] - before == (second ? 1 : 0));
    }
}

TEST_CASE("message port: the library hears once that a peer has been reached") {
    const PlainReset reset;
    PortDuo duo(plain());
    const int before = PlainMessenger::reached;
    exchange_all(duo);
    REQUIRE(PlainMessenger::reached - before == 2);
}

TEST_CASE("message port: sends again what fails before a peer was reached, in order") {
    const PlainReset reset;
    PortDuo duo(plain());
    plain_manners.breaks = 3;
    const Buffer data = pattern(500, 1);
    for (uint64_t number = 1; number <= 4; ++number) {
        send_patiently({&duo.a, &duo.b}, duo.a, 1, number, data, nullptr);
        duo.a.turn();  // hears that it has failed
    }
    for (uint64_t number = 1; number <= 4; ++number) take(duo, duo.b, number, data);
    REQUIRE(duo.a.log.losses.empty());
}

TEST_CASE("message port: a failed message is a loss after a peer was reached, and if all fail") {
    const PlainReset reset;
    const Buffer data = pattern(500, 1);
    for (const bool reached : {false, true}) {
        PortDuo duo(plain());
        if (reached) {
            exchange(duo, duo.a, duo.b, 1, 500);
            duo.a.turn();
        }
        plain_manners.breaks = reached ? 1 : 1000;
        send_patiently({&duo.a, &duo.b}, duo.a, 1, 1, data, nullptr);
        REQUIRE(turning({&duo.a, &duo.b}, [&] { return duo.a.log.losses.size() == 1; }));
        plain_manners.breaks = 0;
    }
}

TEST_CASE("message port: takes more messages than it has buffers, and keeps them") {
    const PlainReset reset;
    PortDuo duo(plain());
    constexpr uint64_t messages = 500;
    for (uint64_t i = 0; i < messages; ++i)
        REQUIRE(send_patiently({&duo.a, &duo.b}, duo.a, 1, i, pattern(500, i), nullptr) ==
                Progress::done);
    REQUIRE(turning({&duo.a, &duo.b}, [&] { return duo.b.log.messages.size() == messages; }));
    for (uint64_t i = 0; i < messages; ++i) {
        const auto& message = duo.b.log.messages[i];
        const Buffer data = pattern(500, i);
        REQUIRE(message.header == header_of(i));
        REQUIRE(std::memcmp(message.data, data.data(), data.size()) == 0);
        duo.b.port->release(message.hold);
    }
    duo.b.log.messages.clear();
    exchange_all(duo);
}

TEST_CASE("message port: many payloads are under way at the same time") {
    const PlainReset reset;
    plain_manners.full = 3;
    PortDuo duo(plain());
    constexpr std::size_t count = 40;
    std::vector<Buffer> data, got;
    for (std::size_t i = 0; i < count; ++i) {
        data.push_back(pattern(30'000 + i, i));
        got.emplace_back(data[i].size());
    }
    for (std::size_t i = 0; i < count; ++i) announce(duo, i, data[i], &data[i]);
    for (const auto& message : duo.b.log.messages) {
        Buffer& to = got[message.bytes - 30'000];
        REQUIRE(turning({&duo.a, &duo.b}, [&] {
            return duo.b.port->fetch(message.hold, to.data(), to.size(), &to) == Progress::pending;
        }));
    }
    REQUIRE(turning({&duo.a, &duo.b}, [&] {
        return duo.b.log.fetches.size() == count && duo.a.log.sent_contexts.size() == count;
    }));
    REQUIRE(data == got);
}

TEST_CASE("message port: tells the sender when a payload is not wanted") {
    const PlainReset reset;
    PortDuo duo(plain());
    const Buffer data = pattern(50'000, 1);
    int context = 0;
    announce(duo, 1, data, &context);
    REQUIRE(duo.a.log.sent_contexts.empty());
    duo.b.port->release(duo.b.log.messages[0].hold);
    REQUIRE(turning({&duo.a, &duo.b}, [&] { return !duo.a.log.sent_contexts.empty(); }));
    REQUIRE(duo.a.log.unsent_contexts.empty());
}

TEST_CASE("message port: a payload leaves from where it was moved to") {
    const PlainReset reset;
    PortDuo duo(plain());
    const Buffer data = pattern(50'000, 1);
    Buffer callers = data, ours = data;
    int context = 0;
    announce(duo, 1, callers, &context);
    REQUIRE_FALSE(duo.a.port->payload_mover()->move(&callers, ours.data()));
    REQUIRE(duo.a.port->payload_mover()->move(&context, ours.data()));
    std::fill(callers.begin(), callers.end(), std::byte{});
    take(duo, duo.b, 1, data);
}

TEST_CASE("message port: a payload that the library has cannot be moved") {
    const PlainReset reset;
    PortDuo duo(plain());
    Buffer data = pattern(10'000, 1);  // in place, behind its header
    int context = 0;
    REQUIRE(send_patiently({&duo.a}, duo.a, 1, 1, data, &context) == Progress::pending);
    REQUIRE_FALSE(duo.a.port->payload_mover()->move(&context, data.data()));
    take(duo, duo.b, 1, data);
    REQUIRE(turning({&duo.a}, [&] { return !duo.a.log.sent_contexts.empty(); }));
}

// ---- strangers -------------------------------------------------------------------------------

/// A messenger without a port, for messages that no port would send.
struct RawMessenger {
    explicit RawMessenger(const PortEnd& to_end) {
        const Bytes& address = to_end.port->address();
        ByteReader in(address);
        to.port = in.get<uint64_t>();
        to.address = in.get<uint64_t>();
    }
    void send(const Prefix& prefix, std::size_t more) {
        Buffer bytes(sizeof prefix + more);
        std::memcpy(bytes.data(), &prefix, sizeof prefix);
        fabric::StagedMessage staged;
        staged.data = bytes.data();
        staged.bytes = bytes.size();
        staged.peer = &to;
        REQUIRE(messenger.inject(staged) == 0);
    }
    MessagePeer to;
    PlainMessenger messenger;
};

TEST_CASE("message port: does not hear strangers, nor grants of what it has not announced") {
    const PlainReset reset;
    PortDuo duo(plain());
    exchange(duo, duo.a, duo.b, 1, 100);
    const Buffer data = pattern(50'000, 1);
    int context = 0;
    announce(duo, 1, data, &context);
    RawMessenger stranger(duo.a);
    const Bytes& address = duo.b.port->address();
    const auto source = ByteReader(address).get<uint64_t>();
    const Prefix right{
        .kind = PrefixKind::ping, .source_rank = 1, .source = source, .target = stranger.to.port};
    stranger.send(right, 0);
    for (const uint64_t number : {uint64_t{7}, uint64_t{1} << 32, ~uint64_t{0}}) {
        Prefix grant = right;
        grant.kind = PrefixKind::grant;
        grant.number = number;
        stranger.send(grant, 0);
    }
    // The first payload's number is 0: but rank 2 has none, and a stranger's port is not rank 1's.
    for (const Rank rank : {2, 1}) {
        Prefix drop = right;
        drop.kind = PrefixKind::drop;
        drop.source_rank = rank;
        drop.source = source + 1;
        stranger.send(drop, 0);
    }
    Prefix eager = right;
    eager.kind = PrefixKind::eager;
    eager.bytes = 100;
    stranger.send(eager, 99);
    eager.target += 1;
    stranger.send(eager, fabric::header_bytes + 100);
    for (int i = 0; i < 20; ++i) duo.a.turn();
    REQUIRE(duo.a.log.messages.empty());
    REQUIRE(duo.a.log.sent_contexts.empty());
    REQUIRE(duo.a.log.losses.empty());
    take(duo, duo.b, 1, data);
}

TEST_CASE("message port: answers a peer that writes before the engine has named it") {
    const PlainReset reset;
    PortEnd a(plain(), 0), b(plain(), 1);
    REQUIRE(b.port->connect(0, a.port->address()));
    const Buffer data = pattern(50'000, 1);
    int context = 0;
    REQUIRE(send_patiently({&b}, b, 0, 1, data, &context) == Progress::pending);
    REQUIRE(turning({&a, &b}, [&] { return !a.log.messages.empty(); }));
    Buffer got(data.size());
    REQUIRE(a.port->fetch(a.log.messages[0].hold, got.data(), got.size(), &got) ==
            Progress::pending);
    REQUIRE(turning({&a, &b}, [&] { return !a.log.fetches.empty(); }));
    REQUIRE(got == data);
    // The engine has not named it, and sends it nothing.
    REQUIRE(a.port->send(1, data.data(), data.data(), 8, nullptr) == Progress::failed);
    a.port->release(a.log.messages[0].hold);
}

TEST_CASE("message port: refuses addresses that are none, and ranks that do not exist") {
    const PlainReset reset;
    PortEnd a(plain(), 0), b(plain(), 1);
    REQUIRE_FALSE(a.port->connect(1, {}));
    REQUIRE_FALSE(a.port->connect(3, b.port->address()));
    REQUIRE_FALSE(a.port->connect(-1, b.port->address()));
    Bytes cut = b.port->address();
    cut.pop_back();
    REQUIRE_FALSE(a.port->connect(1, cut));
    REQUIRE(a.port->send(1, cut.data(), nullptr, 0, nullptr) == Progress::failed);
}

// ---- losses ----------------------------------------------------------------------------------

TEST_CASE("message port: a disconnect ends what is under way, in every state") {
    const PlainReset reset;
    PortDuo duo(plain());
    const Buffer data = pattern(50'000, 3);
    std::vector<Buffer> got(4, Buffer(data.size()));
    for (std::size_t i = 0; i < got.size(); ++i) announce(duo, i, data, &got[i]);
    for (std::size_t i = 0; i < 2; ++i)
        REQUIRE(duo.b.port->fetch(duo.b.log.messages[i].hold, got[i].data(), data.size(),
                                  &got[i]) == Progress::pending);
    duo.b.port->disconnect(0);
    REQUIRE(duo.b.log.fetches.size() == 2);
    for (const auto& message : duo.b.log.messages) duo.b.port->release(message.hold);
    duo.a.port->disconnect(1);
    REQUIRE(duo.a.log.sent_contexts.size() == 4);
    REQUIRE(duo.a.log.unsent_contexts.size() == 4);
    REQUIRE(duo.a.log.losses.empty());
    REQUIRE(duo.a.port->send(1, data.data(), data.data(), 8, nullptr) == Progress::failed);
}

TEST_CASE("message port: a library that does not let go ends the port, and no peer is to blame") {
    const PlainReset reset;
    PortDuo duo(plain());
    const Buffer data = pattern(50'000, 3);
    Buffer got(data.size());
    announce(duo, 1, data, &got);
    plain_manners.keeps_memory = true;
    const auto& message = duo.b.log.messages[0];
    REQUIRE(duo.b.port->fetch(message.hold, got.data(), got.size(), &got) == Progress::pending);
    const int64_t start_ns = now_ns();
    duo.b.port->disconnect(0);
    REQUIRE(now_ns() - start_ns >= 1'000'000'000);
    REQUIRE(duo.b.log.fetches == std::vector{std::pair<void*, Code>{&got, Code::peer_lost}});
    REQUIRE_FALSE(duo.b.port->progress());
    const auto again = duo.b.port->connect(0, duo.a.port->address());
    REQUIRE_FALSE(again);
    REQUIRE(again.error().message.find("plain: closed: it did not release") != std::string::npos);
    duo.b.port->release(message.hold);
    duo.b.port->flush(Deadline{});
}

TEST_CASE("message port: hears that a peer's endpoint is gone, once, while a payload waits") {
    const PlainReset reset;
    PortDuo duo(plain());
    exchange(duo, duo.b, duo.a, 0, 100);
    const Buffer data = pattern(50'000, 3);
    Buffer got(data.size());
    announce(duo, 1, data, &got);
    REQUIRE(duo.b.port->fetch(duo.b.log.messages[0].hold, got.data(), got.size(), &got) ==
            Progress::pending);
    // The grant arrives, but the payload does not leave.
    plain_manners.no_room = true;
    for (PortEnd* end : {&duo.a, &duo.b}) end->turn();
    plain_manners.no_room = false;
    duo.a.port.reset();
    // It sends nothing but what asks whether the peer is there.
    REQUIRE(turning({&duo.b}, [&] { return !duo.b.log.losses.empty(); }));
    REQUIRE(duo.b.log.culprits[0] == Culprit::peer);
    REQUIRE(turning({&duo.b}, [&] { return !duo.b.log.fetches.empty(); }));
    duo.b.port->disconnect(0);
    REQUIRE(duo.b.log.losses.size() == 1);
    duo.b.port->release(duo.b.log.messages[0].hold);
}

TEST_CASE("message port: a peer that was reached and takes nothing any more is lost") {
    const PlainReset reset;
    PortDuo duo(plain());
    exchange(duo, duo.a, duo.b, 1, 100);
    exchange(duo, duo.a, duo.b, 1, 1000);
    for (PortEnd* end : {&duo.b, &duo.a}) end->turn();
    plain_manners.no_room = true;
    const Buffer data = pattern(100, 3);
    const int64_t start_ns = now_ns();
    REQUIRE(send_patiently({&duo.a}, duo.a, 1, 1, data, nullptr) == Progress::failed);
    REQUIRE(now_ns() - start_ns >= 400'000'000);
    REQUIRE(duo.a.log.losses.size() == 1);
    REQUIRE(duo.a.log.losses[0].second.find("the connection broke") != std::string::npos);
    REQUIRE(duo.b.port->send(0, data.data(), data.data(), 8, nullptr) == Progress::busy);
}

TEST_CASE("message port: without any receive it does not open") {
    const PlainReset reset;
    plain_manners.posts_nothing = true;
    PortLog log;
    auto factory = make_plain_factory(0, 2);
    const auto opened = (*factory)->open(log);
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().message.find("posting a receive") != std::string::npos);
}

/// Registers some memory, and then no more.
struct Registrar final : MemoryRegistrar {
    Result<void*> register_memory(std::byte*, std::size_t) override {
        if (left == 0) return fail(Code::no_memory, "see `ulimit -l`");
        --left;
        return &left;
    }
    void deregister(void*) override { ++deregistered; }
    int left = 1000, deregistered = 0;
};

TEST_CASE("message port: memory that cannot be registered is this rank's fault") {
    const PlainReset reset;
    Registrar registrar;
    plain_manners.registrar = &registrar;
    {
        PortDuo duo(plain());
        Buffer fresh(1 << 20);
        exchange_all(duo);
        const Buffer data = pattern(50'000, 3);
        Buffer got(data.size());
        announce(duo, 1, data, nullptr);
        registrar.left = 0;
        REQUIRE(duo.b.port->fetch(duo.b.log.messages[0].hold, fresh.data(), 50'000, &got) ==
                Progress::failed);
        REQUIRE(duo.b.log.culprits == std::vector{Culprit::own});
        REQUIRE(duo.a.port->send(1, header_of(1).data(), fresh.data(), 10'000, nullptr) ==
                Progress::failed);
        REQUIRE(duo.a.log.culprits == std::vector{Culprit::own});
        REQUIRE(duo.a.log.losses[0].second.find("ulimit") != std::string::npos);
        duo.b.port->release(duo.b.log.messages[0].hold);
    }
    REQUIRE(registrar.deregistered > 0);
}

TEST_CASE("message port: a flush waits until what was sent has left, or its time is over") {
    const PlainReset reset;
    PortDuo duo(plain());
    const Buffer data = pattern(1000, 3);
    REQUIRE(send_patiently({&duo.a}, duo.a, 1, 1, data, nullptr) == Progress::done);
    const int64_t start_ns = now_ns();
    duo.a.port->flush(Deadline::after_ms(30));
    REQUIRE(now_ns() - start_ns >= 30'000'000);
    duo.b.turn();
    duo.a.port->flush(Deadline{});
    take(duo, duo.b, 1, data);
}

TEST_CASE("message port: its descriptor is quiet once it was heard") {
    const PlainReset reset;
    PortDuo duo(plain());
    REQUIRE(is_quiet_when_heard(duo.a, 1, duo.b));
}

}  // namespace
}  // namespace tutti::test
