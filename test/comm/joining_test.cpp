// Tests how ranks join through the store: numbers that are taken, and ranks that are missing.
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>
#include <latch>
#include <map>
#include <mutex>
#include <stdexcept>

#include "comm/claims.h"
#include "comm/job.h"
#include "net/socket.h"

using namespace comm_test;

namespace {

std::unique_ptr<Store> open_at(const JobFolder& folder) {
    auto store = open_store({.url = folder.url(), .job = "joining"});
    REQUIRE(store);
    return std::move(*store);
}

constexpr int64_t patience_ms = 20'000;

// With a deadline for a rank that waits in vain.
Config config_of(Rank rank, Rank size) {
    Config config;
    config.rank = rank;
    config.size = size;
    config.job = "joining";
    config.transports = {"inproc"};
    config.timeout_ms = 300;
    return config;
}

Error join_alone(const Config& config, std::shared_ptr<Store> store) {
    const auto comm = Communicator::create(config, std::move(store));
    REQUIRE(!comm);
    INFO(comm.error().message);
    return comm.error();
}

// Answers until it is told to fall silent, or whatever is asked of some keys.
class SilentStore final : public Store {
public:
    explicit SilentStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}
    Result<> set(const std::string& key, std::string_view value, Deadline deadline) override {
        TUTTI_TRY(answer(key, deadline));
        {
            const std::lock_guard lock(mutex_);
            set_[key] = value;
        }
        return inner_->set(key, value, deadline);
    }
    Result<std::string> get(const std::string& key, Deadline deadline) override {
        TUTTI_TRY(answer(key, deadline));
        return inner_->get(key, deadline);
    }
    Result<std::optional<std::string>> try_get(const std::string& key, Deadline deadline) override {
        TUTTI_TRY(answer(key, deadline, way_ms));
        return inner_->try_get(key, deadline);
    }
    Result<bool> claim(const std::string& key, std::string_view value, std::string& existing,
                       Deadline deadline) override {
        TUTTI_TRY(answer(key, deadline));
        return inner_->claim(key, value, existing, deadline);
    }
    Result<> remove(const std::string& key, Deadline deadline) override {
        TUTTI_TRY(answer(key, deadline));
        return inner_->remove(key, deadline);
    }
    std::string describe() const override { return inner_->describe(); }
    std::string last_set(const std::string& key) const {
        const std::lock_guard lock(mutex_);
        const auto found = set_.find(key);
        return found == set_.end() ? "" : found->second;
    }

    std::atomic<bool> silent{false};
    std::string silent_key{};        // a look for it fails; set it before the store is used
    std::string burning_key{};       // a look for it throws; set it before the store is used
    std::atomic<int64_t> way_ms{0};  // there and back, of a look
    std::atomic<int> unanswered{0};

private:
    Result<> answer(const std::string& key, Deadline deadline, int64_t takes_ms = 0) {
        if (key == burning_key) throw std::runtime_error("the store has burnt down");
        const bool lost = silent || key == silent_key;
        const int64_t least_ms = lost ? 60'000 : takes_ms, left_ms = deadline.left_ms(least_ms);
        std::this_thread::sleep_for(std::chrono::milliseconds(left_ms));
        if (!lost && left_ms >= least_ms) return {};
        ++unanswered;
        return fail(Code::timeout, "no answer in time");
    }
    std::unique_ptr<Store> inner_;
    mutable std::mutex mutex_;
    std::map<std::string, std::string> set_;
};

// A rank's record, but for the port of its control address: that of the listener.
std::string leading_to(int listener, std::string record) {
    const auto port = record.rfind(':') + 1;
    REQUIRE(port != 0);
    const std::string own = std::to_string(net::local_port(listener).value());
    REQUIRE(record.find_first_not_of("0123456789", port) == port + own.size());
    return record.replace(port, own.size(), own);
}

// Rank 0's joining where a claim has been left.
std::string join_after(const RankOwner& left) {
    const JobFolder folder;
    const auto store = open_at(folder);
    std::string existing;
    REQUIRE(store->claim("c0/rank/0/owner", left.encode(), existing, {}).value());
    return error_text(join_alone(config_of(0, 2), open_at(folder)));
}

}  // namespace

TEST_CASE("claimant: comes back from its text, whatever the process is called") {
    char before[16] = "";
    REQUIRE(::prctl(PR_GET_NAME, before) == 0);
    const RankOwner plain = RankOwner::this_process("a machine");
    REQUIRE(::prctl(PR_SET_NAME, "a) S 1 (b c)") == 0);
    const RankOwner odd = RankOwner::this_process("a machine");
    REQUIRE(::prctl(PR_SET_NAME, before) == 0);
    for (const RankOwner& self : {odd, RankOwner::decode(odd.encode())}) {
        CHECK(self.machine == "a machine");
        CHECK(self.pid == ::getpid());
        CHECK(self.pid_namespace != 0);
        CHECK(self.start_ticks == plain.start_ticks);
        CHECK(plain.sees(self));
    }
    CHECK(plain.start_ticks != 0);
    CHECK_FALSE(plain.outlived(plain));  // another rank of this process
    for (const char* text : {"", "x", "12", "12 13", "-1 2 3 a machine"})
        CHECK_FALSE(plain.outlived(RankOwner::decode(text)));
}

TEST_CASE("joining: a number is free again when whoever took it is gone") {
    const RankOwner self = RankOwner::this_process(boot_id());
    RankOwner parent = self;  // alive, but since another time
    parent.pid = ::getppid();
    parent.start_ticks = 1;
    RankOwner last = self;
    last.start_ticks -= 1;  // as process 1 of a container finds what the last process 1 left
    RankOwner no_process = self;
    no_process.pid = INT32_MAX;
    for (const RankOwner& gone : {parent, last, no_process}) {
        const std::string text = join_after(gone);
        INFO(text);
        CHECK(contains(text, "1 of 2 ranks did not join"));
    }
}

TEST_CASE("joining: a number is free again when nobody has yet asked what its process came to") {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
    const std::string text = join_after(claimant_of(child));
    ::waitpid(child, nullptr, 0);
    INFO(text);
    CHECK(contains(text, "1 of 2 ranks did not join"));
}

TEST_CASE("joining: a number that is taken says by whom, and what to do about one out of sight") {
    const pid_t child = ::fork();
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    const RankOwner other = claimant_of(child);
    const std::string taken = join_after(other);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(contains(taken, fmt::format("rank 0 is already taken by process {} in file://", child)));

    RankOwner container = other, machine = other;
    container.pid_namespace += 1;
    machine.machine = "another";
    for (const RankOwner& hidden : {container, machine}) {
        const std::string text = join_after(hidden);
        INFO(text);
        CHECK(contains(text, "cannot see whether that one still runs"));
        CHECK(contains(text, "another TUTTI_JOB"));
        CHECK(contains(text, "remove what job 'joining' left"));
        CHECK(
            contains(text, hidden.machine == "another" ? "another machine" : "another container"));
    }
}

TEST_CASE("joining: ranks whose parent still waits for its own parent are not forgotten") {
    Job job{11, "inproc"};  // 9 and 10 are below 1, and all of them are there before 0
    job.change = [](Config& config) {
        config.timeout_ms = 20'000;
        if (config.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    };
    expect_no_problem(run(job, [](Communicator&, Rank) { return std::string(); }));
}

TEST_CASE("joining: who has come is not named as missing by a store that takes its time") {
    const JobFolder folder;
    const auto others = open_at(folder);
    for (const Rank rank : {2, 4})
        REQUIRE(others->set(fmt::format("c0/rank/{}", rank), "here", {}));
    const auto store = std::make_shared<SilentStore>(open_at(folder));
    store->way_ms = 20;
    const Error error = join_alone(config_of(0, 6), store);
    INFO(error.message);
    CHECK(error.code == Code::timeout);
    CHECK(error.rank == 1);
    CHECK(contains(error.message, "3 of 6 ranks did not join within 300 ms: ranks 1, 3, 5 (store"));
}

TEST_CASE("joining: a store that does not answer says nothing about who has not come") {
    const JobFolder folder;
    const auto store = std::make_shared<SilentStore>(open_at(folder));
    const int64_t start_ns = now_ns();
    SECTION("of nobody") {
        store->silent_key = "c0/rank/1";
        const Error error = join_alone(config_of(0, 6), store);
        INFO(error.message);
        CHECK(error.code == Code::timeout);
        CHECK(error.rank == nobody);
        CHECK(contains(error.message, "does not answer which of ranks 1 to 5 joined: no answer"));
        CHECK_FALSE(contains(error.message, "did not join"));
    }
    SECTION("from some rank on") {
        store->silent_key = "c0/rank/3";
        const Error error = join_alone(config_of(0, 6), store);
        INFO(error.message);
        CHECK(error.rank == 1);
        CHECK(contains(error.message,
                       "at least 2 of 6 ranks did not join within 300 ms: ranks 1, 2"));
        CHECK(contains(error.message, "which of ranks 3 to 5 joined"));
    }
    CHECK(now_ns() - start_ns < 20'000'000'000);
}

TEST_CASE("joining: a parent that closes the connection because the start failed left word of it") {
    const JobFolder folder;
    const auto kept = std::make_shared<SilentStore>(open_at(folder));
    const Error first = join_alone(config_of(0, 3), kept);
    CHECK(contains(first.message, "ranks 1, 2"));
    // It had come as far as to listen, and hears of nobody's secret any more.
    const auto listening = net::listen_tcp({"127.0.0.1", 0});
    REQUIRE(listening);
    REQUIRE(kept->set("c0/rank/0", leading_to(listening->get(), kept->last_set("c0/rank/0")), {}));
    std::atomic<bool> over{false};
    std::thread closes([&] {
        while (!over) {
            const UniqueFd gone(accept(listening->get(), nullptr, nullptr));
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    Config config = config_of(1, 3);
    config.timeout_ms = patience_ms;
    const Error second = join_alone(config, kept);
    over = true;
    closes.join();
    CHECK(second.code == Code::timeout);
    CHECK(contains(second.message, "ranks 1, 2"));
}

TEST_CASE("joining: a parent that closes the connection in mid-handshake is called again") {
    const JobFolder folder;
    const auto kept = std::make_shared<SilentStore>(open_at(folder));
    Config configs[] = {config_of(0, 2), config_of(1, 2)};
    for (Config& config : configs) config.timeout_ms = 20'000;
    std::string problem;
    std::thread parent([&] {
        auto comm = Communicator::create(configs[0], kept);
        if (!comm) return void(problem = comm.error().message);
        (*comm)->destroy();
    });
    const Deadline patience = Deadline::after_ms(20'000);
    while (kept->last_set("c0/rank/0").empty() && !patience.passed()) std::this_thread::yield();
    const std::string record = kept->last_set("c0/rank/0");
    const auto listening = net::listen_tcp({"127.0.0.1", 0});
    REQUIRE(listening);
    const auto store = open_at(folder);
    REQUIRE(store->set("c0/rank/0", leading_to(listening->get(), record), {}));
    std::atomic<bool> over{false};
    std::thread closes([&] {
        for (int calls = 0; calls < 3 && !over;) {
            const UniqueFd caller(accept(listening->get(), nullptr, nullptr));
            if (!caller)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            else if (++calls == 3)
                (void)store->set("c0/rank/0", record, {});  // for the call after this one
        }
    });
    auto comm = Communicator::create(configs[1], open_at(folder));
    over = true;
    closes.join();
    if (comm) (*comm)->destroy();
    parent.join();
    INFO((comm ? "" : comm.error().message));
    CHECK(comm.has_value());
    CHECK(problem == "");
}

TEST_CASE("joining: a rank of another version is told of it, as is everyone else") {
    const JobFolder folder;
    const auto kept = std::make_shared<SilentStore>(open_at(folder));
    Config config = config_of(0, 2);
    config.timeout_ms = 60'000;
    std::string heard;
    std::thread parent([&] {
        const auto comm = Communicator::create(config, kept);
        heard = comm ? "joined" : comm.error().message;
    });
    const Deadline patience = Deadline::after_ms(20'000);
    while (kept->last_set("c0/rank/0").empty() && !patience.passed()) std::this_thread::yield();
    const std::string record = kept->last_set("c0/rank/0");
    const auto port = static_cast<uint16_t>(std::stoi(record.substr(record.rfind(':') + 1)));
    const auto fd = net::connect_tcp({.host = "127.0.0.1", .port = port}, {.deadline = patience});
    REQUIRE(fd);
    const Bytes hello = ControlTree::Hello{.version = 7, .rank = 1}.encode();
    REQUIRE(net::introduce(fd->get(), {"", "control/joining"}, hello, patience));
    const auto told = net::recv_frame(fd->get(), 4096, patience);
    parent.join();
    REQUIRE(told);
    for (const std::string_view text : {as_text(*told), std::string_view(heard)}) {
        INFO(text);
        CHECK(contains(std::string(text), "rank 1 speaks version 7"));
        CHECK(contains(std::string(text), "rank 0 version 1"));
    }
}

TEST_CASE("joining: a word left in the store is of a failure, whatever it says") {
    const JobFolder folder;
    const auto store = open_at(folder);
    const auto word =
        ByteWriter().put(wall_clock_s()).put(Code::ok).put(Rank{9}).put_text("why").take();
    REQUIRE(store->set("c0/failed", as_text(word), {}));
    Config config = config_of(1, 3);
    config.timeout_ms = patience_ms;
    const Error error = join_alone(config, open_at(folder));
    CHECK(error.code == Code::system);
    CHECK(error.rank == nobody);
    CHECK(contains(error.message, "why"));
}

TEST_CASE("joining: whatever is thrown on the way is an error, of which the others hear soon") {
    const JobFolder folder;
    const auto store = std::make_shared<SilentStore>(open_at(folder));
    store->burning_key = "c0/rank/0";
    Config waits = config_of(0, 2);
    waits.timeout_ms = 120'000;
    const std::shared_ptr<Store> own = open_at(folder);
    const int64_t start_ns = now_ns();
    std::string heard;
    std::thread parent([&] {
        const auto comm = Communicator::create(waits, own);
        heard = comm ? "joined" : comm.error().message;
    });
    Config config = config_of(1, 2);
    config.timeout_ms = patience_ms;
    const Error error = join_alone(config, store);
    parent.join();
    CHECK(error.code == Code::system);
    CHECK(contains(error.message, "the store has burnt down"));
    CHECK(contains(heard, "the store has burnt down"));
    CHECK(now_ns() - start_ns < 60'000'000'000);
}

TEST_CASE("joining: who serves the store tells how many came with a wrong secret") {
    Config config = config_of(0, 2);
    {
        const auto listening = net::listen_tcp({"127.0.0.1", 0});
        REQUIRE(listening);
        config.store = fmt::format("tcp://127.0.0.1:{}", net::local_port(listening->get()).value());
    }
    config.secret = "right";
    config.timeout_ms = 1000;
    // The process goes on to serve the store after that.
    CHECK_FALSE(contains(join_alone(config, nullptr).message, "refused"));
    const auto stranger = open_store({.url = config.store,
                                      .job = config.job,
                                      .secret = "wrong",
                                      .rank = 1,
                                      .deadline = Deadline::after_ms(patience_ms)});
    REQUIRE(!stranger);
    CHECK(stranger.error().code == Code::auth);
    CHECK(contains(stranger.error().advice, "compare TUTTI_SECRET and TUTTI_JOB"));
    // The stranger may know of the refusal before its connection has ended here.
    Error error;
    eventually([&] { return contains((error = join_alone(config, nullptr)).message, "refused"); });
    CHECK(contains(error.message, "1 of 2 ranks did not join"));
    CHECK(contains(error.message, "1 connection to the store was refused for a wrong secret"));
}

TEST_CASE("joining: leaving does not wait for a store that has fallen silent") {
    const JobFolder folder;
    std::vector<std::string> problems(2);
    std::vector<std::thread> threads;
    std::atomic<int> silent{0};
    for (Rank rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            std::string& problem = problems[static_cast<std::size_t>(rank)];
            Config config = config_of(rank, 2);
            config.timeout_ms = 120'000;
            auto inner = open_store({.url = folder.url(), .job = "joining"});
            if (!inner) return void(problem = inner.error().message);
            const auto store = std::make_shared<SilentStore>(std::move(*inner));
            auto comm = Communicator::create(config, store);
            store->silent = true;
            ++silent;
            if (!comm) return void(problem = comm.error().message);
            while (silent < 2) std::this_thread::yield();
            const int64_t start_ns = now_ns();
            (*comm)->destroy();
            if (now_ns() - start_ns > soon_ns) problem = "it waited";
            if (store->unanswered != 1) problem += "asked again";
        });
    for (std::thread& thread : threads) thread.join();
    expect_no_problem(problems);
}

TEST_CASE("joining: ranks meet again after an attempt that one of them gave up early") {
    for (const std::string setting : {"transport", "algo", "tuning", "iface"}) {
        const JobFolder folder;
        std::vector<std::string> problems(2);
        std::vector<std::thread> threads;
        // A rank that begins a second later misses the failure, which a directory forgets.
        std::latch both(2);
        for (Rank rank = 0; rank < 2; ++rank)
            threads.emplace_back([&, rank] {
                std::string& problem = problems[static_cast<std::size_t>(rank)];
                Config config = config_of(rank, 2);
                config.store = folder.url();
                Config bad = config;
                if (rank == 1 && setting == "transport") bad.transports = {"none"};
                if (rank == 1 && setting == "algo") bad.algo = "none";
                if (rank == 1 && setting == "tuning") bad.tuning = "/none";
                if (rank == 1 && setting == "iface") bad.iface = "none";
                both.arrive_and_wait();
                if (Communicator::create(bad, nullptr)) problem = "the first attempt succeeded";
                config.timeout_ms = 20'000;
                auto comm = Communicator::create(config, nullptr);
                if (!comm) return void(problem = comm.error().message);
                (*comm)->destroy();
            });
        for (std::thread& thread : threads) thread.join();
        INFO(setting);
        expect_no_problem(problems);
    }
}
