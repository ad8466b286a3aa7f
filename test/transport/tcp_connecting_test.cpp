// Tests how TCP connections are made: the addresses that a rank tries, which side calls, and the
// errors if no peer answers.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <span>
#include <thread>

#include "transport/closing.h"
#include "transport/tcp_fixture.h"
#include "wait/reactor.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("tcp: speaks IPv6") {
    const JoinedTransport kind{"tcp", [](const TransportContext& context) {
                                   TransportContext six = context;
                                   six.iface = "::1";
                                   return make_tcp_transport(six);
                               }};
    if (!net::choose_address({"::1", true})) return;  // a machine without it
    Duo duo(kind);
    REQUIRE(duo.a.address.address.find("[::1]:") == 0);
    auto lane = duo.open(0);
    const Buffer data = pattern(tcp::max_message_bytes, 1);
    lane.sender->push(make_tag(1), data.data(), data.size());
    REQUIRE(eventually({&duo.a, &duo.b},
                       [&] { return holds(lane.receiver->peek(make_tag(1), data.size()), data); }));
}

std::ptrdiff_t open_fds() {
    const std::filesystem::directory_iterator fds("/proc/self/fd");
    return std::distance(begin(fds), end(fds));
}

TEST_CASE("tcp: carries messages both ways over one connection when both sides connect at once") {
    for (int round = 0; round < 10; ++round) {
        Duo duo(tcp_kind);
        const auto before = open_fds();
        std::atomic<int> at_the_line{0};
        std::unique_ptr<Sender> senders[2];
        const auto open = [&](int me) {
            TestEndpoint& from = me == 0 ? duo.a : duo.b;
            TestEndpoint& to = me == 0 ? duo.b : duo.a;
            for (++at_the_line; at_the_line < 2;) cpu_relax();
            auto opened = from.transport->open({.peer = to.address.rank, .comm = 7, .lane = 2},
                                               to.address, soon());
            if (opened) senders[me] = std::move(*opened);
        };
        std::thread other([&] { open(1); });
        open(0);
        other.join();
        REQUIRE((senders[0] && senders[1]));
        std::unique_ptr<Receiver> receivers[2];
        REQUIRE(eventually({&duo.a, &duo.b}, [&] {
            if (!receivers[0]) receivers[0] = duo.a.sink.take({.peer = 1, .comm = 7, .lane = 2});
            if (!receivers[1]) receivers[1] = duo.b.sink.take({.peer = 0, .comm = 7, .lane = 2});
            return receivers[0] && receivers[1];
        }));
        // Its two ends.
        REQUIRE(eventually({&duo.a, &duo.b}, [&] { return open_fds() == before + 2; }));
        const Buffer data = pattern(20'000, 1);
        for (uint64_t i = 0; i < 3 * tcp::credits_per_channel; ++i) {
            for (auto& sender : senders) {
                REQUIRE(eventually({&duo.a, &duo.b}, [&] { return sender->can_push(); }));
                sender->push(make_tag(i), data.data(), data.size());
            }
            for (auto& receiver : receivers) {
                REQUIRE(eventually({&duo.a, &duo.b}, [&] {
                    return holds(receiver->peek(make_tag(i), data.size()), data);
                }));
                receiver->release();
            }
        }
    }
}

/// A port at which nothing happens until someone takes the descriptor.
struct Listening {
    UniqueFd fd;
    std::string address;
    /// To call as that rank.
    PeerAddress of(Rank rank) const {
        return {.rank = rank, .host_id = "this host", .address = address};
    }
};
Listening listening() {
    auto fd = net::listen_tcp({"127.0.0.1", 0});
    REQUIRE(fd);
    const auto port = net::local_port(fd->get());
    REQUIRE(port);
    return {std::move(*fd), fmt::format("127.0.0.1:{}", *port)};
}

/// Rank 0, which gives these answers to whoever calls, one each, once it has hung up on the first
/// few, and hangs up on the others.
class Answering {
public:
    explicit Answering(std::vector<tcp::Answer> answers, std::size_t hung_up_on = 0)
        : answers_(std::move(answers)), hung_up_on_(hung_up_on) {
        Listening listener = listening();
        address = listener.of(0);
        acceptor_ = std::make_unique<net::Acceptor>(
            reactor_, std::move(listener.fd), net::AuthKey{"a secret", "tcp/test"},
            [this](UniqueFd fd, const Bytes&) { answer(std::move(fd)); }, net::Acceptor::Options{});
        pump_ = std::thread([this] {
            while (!stop_) reactor_.poll(10);
        });
    }
    ~Answering() {
        stop_ = true;
        pump_.join();
    }
    int calls() const { return calls_; }

    PeerAddress address;

private:
    void answer(UniqueFd fd) {
        const std::size_t index =
            static_cast<std::size_t>(calls_++) - hung_up_on_;  // wraps: hangs up
        if (index < answers_.size() &&
            net::send_all(fd.get(), std::as_bytes(std::span(&answers_[index], 1)), soon()))
            taken_.push_back(std::move(fd));
    }

    const std::vector<tcp::Answer> answers_;
    const std::size_t hung_up_on_;
    Reactor reactor_;
    std::unique_ptr<net::Acceptor> acceptor_;
    std::vector<UniqueFd> taken_;
    std::atomic<int> calls_{0};
    std::atomic<bool> stop_{false};
    std::thread pump_;
};

TEST_CASE("tcp: uses the lower rank's connection when its own call is answered with one") {
    TestEndpoint endpoint(tcp_kind, 1, 2);
    const Answering lower({tcp::Answer::crossing});
    std::unique_ptr<RawPeer> peer;
    std::thread calls([&] {
        while (lower.calls() == 0) std::this_thread::yield();
        peer = std::make_unique<RawPeer>(endpoint, 0);
    });
    const auto opened =
        endpoint.transport->open({.peer = 0, .comm = 7, .lane = 2}, lower.address, soon());
    calls.join();
    REQUIRE(opened);
    REQUIRE(peer->answer() == tcp::Answer::taken);
    REQUIRE(peer->read_header().magic == tcp::Header::magic_of(tcp::Kind::open));
    REQUIRE(lower.calls() == 1);
}

TEST_CASE("tcp: calls again when the connection that it was promised does not come") {
    TestEndpoint endpoint(tcp_kind, 1, 2);
    const Answering lower({tcp::Answer::crossing, tcp::Answer::taken});
    REQUIRE(endpoint.transport->open({.peer = 0, .comm = 7, .lane = 2}, lower.address, soon()));
    REQUIRE(lower.calls() == 2);
}

TEST_CASE("tcp: says so when the connection that it was promised never comes") {
    TestEndpoint endpoint(tcp_kind, 1, 2);
    // On a busy machine the deadline may pass before the first answer.
    Error error;
    bool said = false;
    for (int64_t ms = 200; ms < 30'000 && !said; ms *= 10) {
        const Answering lower(std::vector(1000, tcp::Answer::crossing));
        const auto opened = endpoint.transport->open({.peer = 0, .comm = 7, .lane = 2},
                                                     lower.address, Deadline::after_ms(ms));
        REQUIRE_FALSE(opened);
        error = opened.error();
        said = error.message.find("is connecting to this rank at 127.0.0.1:") != std::string::npos;
    }
    INFO(error.message);
    REQUIRE(error.code == Code::timeout);
    REQUIRE(said);
}

TEST_CASE("tcp: names what may be wrong when the other side hangs up on its hello") {
    TestEndpoint endpoint(tcp_kind, 1, 2);
    const Answering lower({});
    const auto opened =
        endpoint.transport->open({.peer = 0, .comm = 7, .lane = 2}, lower.address, soon());
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().code == Code::peer_lost);
    REQUIRE(opened.error().advice.find("the same version of tutti") != std::string::npos);
}

TEST_CASE("tcp: calls again when the other side hangs up, as one out of descriptors may") {
    TestEndpoint endpoint(tcp_kind, 1, 2);
    const Answering lower({tcp::Answer::taken}, 2);
    REQUIRE(endpoint.transport->open({.peer = 0, .comm = 7, .lane = 2}, lower.address, soon()));
    REQUIRE(lower.calls() == 3);
}

TEST_CASE("tcp: calls again when the other side closes in mid-handshake") {
    TestEndpoint endpoint(tcp_kind, 1, 2);
    Listening listener = listening();
    const Closing closing(std::move(listener.fd));
    const auto opened =
        endpoint.transport->open({.peer = 0, .comm = 7, .lane = 2}, listener.of(0), soon());
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().code == Code::auth);
    REQUIRE(closing.calls() == 10);
}

TEST_CASE("tcp: tells a higher rank that its own call is under way, and a lower one nothing else") {
    TestEndpoint endpoint(tcp_kind, 1, 3);
    Answering callee({tcp::Answer::taken});
    callee.address.rank = 2;
    REQUIRE(endpoint.transport->open({.peer = 2, .comm = 7, .lane = 2}, callee.address, soon()));
    REQUIRE(RawPeer(endpoint, 2).answer() == tcp::Answer::crossing);
    REQUIRE(RawPeer(endpoint, 0).answer() == tcp::Answer::taken);
}

TEST_CASE("tcp: names the address and the rank when nobody listens there") {
    TestEndpoint endpoint(tcp_kind, 0, 8);
    Listening listener = listening();
    listener.fd.reset();  // a port that was free a moment ago
    const auto opened =
        endpoint.transport->open({.peer = 5, .comm = 7, .lane = 0}, listener.of(5), soon());
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().rank == 5);
    REQUIRE(opened.error().message.find("rank 5") != std::string::npos);
    REQUIRE(opened.error().message.find(listener.address) != std::string::npos);
}

TEST_CASE("tcp: gives up at the deadline when the other side accepts and says nothing") {
    TestEndpoint endpoint(tcp_kind, 0, 8);
    const Listening listener = listening();
    const auto opened = endpoint.transport->open({.peer = 5, .comm = 7, .lane = 0}, listener.of(5),
                                                 Deadline::after_ms(200));
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().code == Code::timeout);
    REQUIRE(opened.error().rank == 5);
}

TEST_CASE("tcp: one that accepts and says nothing holds up no call to others") {
    TestEndpoint endpoint(tcp_kind, 0, 8);
    Listening silent = listening();
    const PeerAddress mute = silent.of(5);
    Answering callee({tcp::Answer::taken});
    callee.address.rank = 6;

    const auto limit = std::chrono::seconds(60);
    std::atomic<bool> begins{false};
    std::thread stuck([&] {
        begins = true;
        const auto opened = endpoint.transport->open({.peer = 5, .comm = 7, .lane = 0}, mute,
                                                     Deadline::after_ms(limit / 1ms));
        static_cast<void>(opened);
    });
    while (!begins) std::this_thread::yield();
    std::this_thread::sleep_for(50ms);
    const auto other = endpoint.transport->open({.peer = 6, .comm = 7, .lane = 0}, callee.address,
                                                Deadline::after_ms(limit / 3ms));
    const auto same =
        endpoint.transport->open({.peer = 5, .comm = 7, .lane = 1}, mute, Deadline::after_ms(100));
    silent.fd.reset();  // the call in its queue is over
    stuck.join();
    REQUIRE(other);
    REQUIRE_FALSE(same);
    REQUIRE(same.error().code == Code::timeout);
    REQUIRE(same.error().rank == 5);
}

TEST_CASE("tcp: refuses a peer with another secret") {
    TestEndpoint endpoint(tcp_kind, 0, 2);
    TestEndpoint stranger(tcp_kind, 1, 2, "test", "another secret");
    const auto opened =
        stranger.transport->open({.peer = 0, .comm = 7, .lane = 0}, endpoint.address, soon());
    REQUIRE_FALSE(opened);
    REQUIRE(opened.error().code == Code::auth);
    REQUIRE(endpoint.sink.lost().empty());
}

TEST_CASE("tcp: tries each address that is worth trying") {
    Duo duo(tcp_kind);
    PeerAddress peer = duo.b.address;
    peer.address = "127.0.0.1:1," + duo.b.address.address;
    REQUIRE(duo.a.transport->may_reach(peer));
    REQUIRE(duo.a.transport->open({.peer = 1, .comm = 7, .lane = 0}, peer, soon()));
    // Between ranks that listen on loopback alone, the hosts are only acted.
    peer.host_id = "another host";
    REQUIRE(duo.a.transport->may_reach(peer));
    peer.address = "nonsense";
    REQUIRE_FALSE(duo.a.transport->may_reach(peer));
}

}  // namespace
}  // namespace tutti::test
