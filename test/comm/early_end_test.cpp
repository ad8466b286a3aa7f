// Ranks that fail or die before they have joined: the others hear of it, long before the deadline.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>

#include "comm/claims.h"
#include "comm/job.h"
#include "job/records/claim_watch.h"
#include "net/acceptor.h"
#include "net/socket.h"
#include "rendezvous/store_protocol.h"

using namespace comm_test;

namespace {

constexpr int64_t timeout_ms = 120'000;

Config config_of(Rank rank, Rank size, const std::string& store) {
    Config config;
    config.rank = rank;
    config.size = size;
    config.job = "early";
    config.store = store;
    config.transports = {"inproc"};
    config.timeout_ms = timeout_ms;
    return config;
}

std::string free_url() {
    const auto listening = net::listen_tcp({"127.0.0.1", 0});
    return fmt::format("tcp://127.0.0.1:{}", net::local_port(listening->get()).value());
}

/// A rank that joins on a thread of its own, and what it is told.
class Joining {
public:
    explicit Joining(Config config, std::shared_ptr<Store> store = nullptr)
        : thread_([this, config = std::move(config), store = std::move(store)] {
              const auto comm = Communicator::create(config, store);
              if (!comm) error_ = comm.error();
          }) {}
    Error told() {
        thread_.join();
        return error_;
    }

private:
    Error error_{Code::ok, nobody, 0, "joined"};
    std::thread thread_;
};

/// A process that does nothing, as long as it is let.
class Idle {
public:
    Idle() : pid_(::fork()) {
        if (pid_ != 0) return;
        ::pause();
        ::_exit(0);
    }
    ~Idle() { kill(); }
    Idle(const Idle&) = delete;
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(std::exchange(pid_, 0), nullptr, 0);
    }
    RankOwner claimant() const { return claimant_of(pid_); }

private:
    pid_t pid_;
};

std::unique_ptr<Store> open_at(const Config& config) {
    auto store = open_store({.url = config.store,
                             .job = config.job,
                             .rank = 1,
                             .deadline = Deadline::after_ms(timeout_ms)});
    REQUIRE(store);
    return std::move(*store);
}

void await(Store& store, const std::string& key) {
    REQUIRE(store.get(key, Deadline::after_ms(timeout_ms)));
}

}  // namespace

TEST_CASE("early end: of a rank that cannot join, the others hear why") {
    struct Wrong {
        const char* text;
        std::function<void(Config&)> change;
    };
    for (const auto& [text, change] : {
             Wrong{"eth77", [](Config& c) { c.iface = "eth77"; }},
             Wrong{"unknown transport 'rdma'", [](Config& c) { c.transports = {"rdma"}; }},
             Wrong{"no algorithm 'magic'", [](Config& c) { c.algo = "magic"; }},
             Wrong{"/no/such/driver", [](Config& c) { c.cuda_library = "/no/such/driver"; }},
             Wrong{"99 rings",
                   [](Config& c) {
                       c.refused = Error{Code::invalid, nobody, 0, "99 rings"};
                   }},
             Wrong{"rank 7 of a job of size 2", [](Config& c) { c.rank = 7; }},
         }) {
        const JobFolder folder;
        for (const std::string& url : {folder.url(), free_url()}) {
            INFO(text << " " << url);
            const int64_t start_ns = now_ns();
            const Config waits = config_of(0, 2, url);
            Joining root(waits);
            // A directory forgets the word of a rank soon after it has failed, but not while the
            // rank's store is open. Rank 0 serves the other store, and may be slow to begin.
            const std::shared_ptr<Store> store = open_at(waits);
            await(*store, "c0/rank/0");
            Config wrong = config_of(1, 2, url);
            change(wrong);
            Joining other(wrong, url.starts_with("file:") ? store : nullptr);
            const Error own = other.told(), heard = root.told();
            CHECK(contains(own.message, text));
            CHECK(contains(heard.message, text));
            CHECK(now_ns() - start_ns < soon_ns);
        }
    }
}

TEST_CASE("early end: a process on this host that dies after its claim is named by who watches") {
    const JobFolder folder;
    for (const Rank watcher : {0, 2}) {
        const Config config = config_of(watcher, 3, folder.url() + std::to_string(watcher));
        const auto store = open_at(config);
        Idle process;
        std::string existing;
        REQUIRE(store->claim("c0/rank/1/owner", process.claimant().encode(), existing, {}).value());
        const int64_t start_ns = now_ns();
        // The word that it leaves is there as long as its store is open.
        const std::shared_ptr<Store> own = open_at(config);
        Joining joining(config, own);
        await(*store, fmt::format("c0/rank/{}", watcher));
        process.kill();
        // Ranks that do not watch it, or come later, read it.
        const auto word = store->get("c0/failed", Deadline::after_ms(timeout_ms));
        REQUIRE(word);
        CHECK(contains(*word, "process of rank 1"));
        const Error heard = joining.told();
        INFO(heard.message);
        CHECK(heard.code == Code::peer_lost);
        CHECK(heard.rank == 1);
        CHECK(contains(heard.message, "the process of rank 1 ended while it was joining"));
        CHECK(now_ns() - start_ns < soon_ns);
    }
}

TEST_CASE("claim watch: what an earlier run left behind is not taken for a death") {
    RankOwner self = RankOwner::this_process(boot_id());
    Idle process;
    RankOwner other = process.claimant();
    ClaimWatch watch(self, 0, 2);
    std::optional<std::string> claim;
    const auto look = [&](Rank) { return claim; };
    CHECK_FALSE(watch.ended(look));
    RankOwner earlier = other;
    earlier.start_ticks = 1;
    claim = earlier.encode();
    CHECK_FALSE(watch.ended(look));
    claim = other.encode();  // the claim is renewed
    CHECK_FALSE(watch.ended(look));
    process.kill();
    CHECK(watch.ended(look) == 1);
    self.start_ticks = other.start_ticks;  // and who comes later knows that it is of this run
    CHECK(ClaimWatch(self, 0, 2).ended(look) == 1);
    RankOwner elsewhere = other;
    elsewhere.machine = "another";
    claim = elsewhere.encode();
    CHECK_FALSE(ClaimWatch(self, 0, 2).ended(look));
}

TEST_CASE("early end: the tcp store tells of a client whose connection ends while it joins") {
    const Config config = config_of(0, 3, free_url());
    const int64_t start_ns = now_ns();
    Joining root(config);
    Joining waits(config_of(2, 3, config.store));
    {
        const auto at = net::parse_host_port(config.store.substr(6)).value();
        const auto fd =
            net::connect_tcp(at, {.deadline = Deadline::after_ms(timeout_ms), .keep_trying = true});
        REQUIRE(fd);
        const Bytes hello = ByteWriter().put(store_protocol::version).take();
        const auto word = ByteWriter().put(Code::peer_lost).put(Rank{1}).put_text("it died").take();
        const Deadline deadline = Deadline::after_ms(timeout_ms);
        REQUIRE(net::introduce(fd->get(), {"", "store/early"}, hello, deadline));
        REQUIRE(net::send_frame(fd->get(),
                                store_protocol::encode_request(store_protocol::StoreOp::will,
                                                               "c0/failed", as_text(word)),
                                deadline));
        REQUIRE(net::recv_frame(fd->get(), 100, deadline));
    }
    for (const Error& heard : {root.told(), waits.told()}) {
        CHECK(heard.code == Code::peer_lost);
        CHECK(heard.rank == 1);
        CHECK(contains(heard.message, "it died"));
    }
    CHECK(now_ns() - start_ns < soon_ns);
}

TEST_CASE("early end: without rank 0's store, the others name rank 0") {
    auto listening = net::listen_tcp({"127.0.0.1", 0});
    REQUIRE(listening);
    const std::string url =
        fmt::format("tcp://127.0.0.1:{}", net::local_port(listening->get()).value());
    const int64_t start_ns = now_ns();
    Joining waits(config_of(1, 2, url));
    {
        // It has been reached, and says nothing.
        pollfd caller{.fd = listening->get(), .events = POLLIN, .revents = 0};
        ::poll(&caller, 1, 60'000);
        const UniqueFd reached(::accept(listening->get(), nullptr, nullptr));
        std::byte begun{};
        CHECK(::recv(reached.get(), &begun, 1, 0) == 1);
        listening->reset();
    }
    const Error heard = waits.told();
    INFO(heard.message);
    CHECK(heard.code == Code::peer_lost);
    CHECK(heard.rank == 0);
    CHECK(now_ns() - start_ns < soon_ns);
}

TEST_CASE("early end: attempts of a launcher that restarts its ranks do not meet in its store") {
    const JobFolder folder;
    Config first = config_of(0, 2, folder.url());
    first.timeout_ms = 200;
    CHECK(Joining(first).told().code == Code::timeout);
    // The rank that failed counts one attempt; its successor and the other, a new process, none.
    std::vector<std::unique_ptr<Joining>> ranks;
    for (const Rank rank : {0, 1}) {
        Config config = config_of(rank, 2, folder.url());
        config.attempt = 1;
        ranks.push_back(std::make_unique<Joining>(config));
    }
    for (const auto& rank : ranks) {
        const Error told = rank->told();
        INFO(told.message);
        CHECK(told.code == Code::ok);
    }
}
