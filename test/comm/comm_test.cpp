// Ranks as threads of one process: the whole library on one mapping, so that the thread sanitizer
// sees both sides of every channel.
#include <atomic>
#include <fstream>

#include "comm/job.h"
#include "support/sanitized.h"

using namespace comm_test;

namespace {

std::string allreduce(Communicator& comm, std::size_t count) {
    std::vector<float> x(count, static_cast<float>(comm.rank() + 1));
    if (auto done = comm.calls().run(sum_of(count), x.data(), x.data()); !done)
        return done.error().message;
    const auto expected = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
    for (float value : x)
        if (value != expected) return fmt::format("count {}: {} is not {}", count, value, expected);
    return "";
}

std::unique_ptr<Transfer> message(bool sends, Rank peer, int tag, std::vector<std::byte>& data) {
    auto transfer = std::make_unique<Transfer>();
    transfer->sends = sends;
    transfer->peer = peer;
    transfer->user_tag = tag;
    transfer->memory = data.data();
    transfer->bytes = data.size();
    return transfer;
}

/// Rank 1 sends a large message, which a thread of rank 0 waits for while another one sends.
std::string send_while_answering(Communicator& comm, int round) {
    const bool first = comm.rank() == 0;
    std::vector<std::byte> large(160'000, static_cast<std::byte>(comm.rank())),
        small(40, static_cast<std::byte>(comm.rank()));
    auto received = comm.messages().start(
        first ? message(false, any_source, 1, large) : message(false, 0, 2, small), 20'000);
    if (!received) return received.error().message;
    std::thread waiter([&] { comm.progress().wait(**received, -1); });
    auto met = comm.calls().run(barrier(), nullptr, nullptr);
    for (const int64_t until = now_ns() + round % 20 * 20'000; first && now_ns() < until;)
        cpu_relax();
    auto sent = comm.messages().start(
        first ? message(true, 1, 2, small) : message(true, 0, 1, large), 20'000);
    if (sent) comm.progress().wait(**sent, -1);
    waiter.join();
    if (!met) return met.error().message;
    if (!sent) return sent.error().message;
    for (const auto& request : {&**sent, &**received})
        if (request->code.load() != Code::ok) return request->error.message;
    const auto& got = first ? large : small;
    return got.back() == static_cast<std::byte>(1 - comm.rank()) ? "" : "wrong data";
}

/// Memory of this process that it shares with no other.
long own_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        if (word != "RssAnon:") continue;
        long kib = 0;
        status >> kib;
        return kib * 1024;
    }
    return 0;
}

}  // namespace

TEST_CASE("communicator: all sizes, on every transport, with ranks as threads") {
    for (const char* transport : transports_under_test)
        for (Rank ranks : {1, 2, 3, 4}) {
            INFO(transport << " ranks " << ranks);
            expect_no_problem(run({ranks, transport}, [](Communicator& comm, Rank) -> std::string {
                for (std::size_t count : {0ul, 1ul, 7ul, 1000ul, 20'000ul, 100'003ul, 262'144ul})
                    if (auto problem = allreduce(comm, count); !problem.empty()) return problem;
                for (Rank root = 0; root < comm.size(); ++root) {
                    std::vector<uint32_t> x(50'000, static_cast<uint32_t>(comm.rank()));
                    Call call;
                    call.collective = Collective::broadcast;
                    call.count = x.size();
                    call.dtype = Dtype::uint32;
                    call.root = root;
                    if (auto done = comm.calls().run(call, x.data(), x.data()); !done)
                        return done.error().message;
                    if (x.back() != static_cast<uint32_t>(root)) return "wrong broadcast";
                }
                for (int i = 0; i < 20; ++i)
                    if (auto done = comm.calls().run(barrier(), nullptr, nullptr); !done)
                        return done.error().message;
                return "";
            }));
        }
}

// Answers like a store that is far away or busy: each look takes 20 ms, or fails if less is left.
class SlowStore final : public StoreBehind {
    using StoreBehind::StoreBehind;
    Result<> before_look(Deadline deadline) override {
        constexpr int64_t way_ms = 20;
        const int64_t left_ms = deadline.left_ms(way_ms);
        std::this_thread::sleep_for(std::chrono::milliseconds(left_ms));
        if (left_ms < way_ms) return fail(Code::timeout, "the store did not answer in time");
        return {};
    }
};

TEST_CASE(
    "communicator: who comes late to a job that cannot start is told why, by a slow store too") {
    const JobFolder folder;
    constexpr Rank ranks = 3;
    std::vector<std::string> told(ranks);
    const auto join = [&](Rank rank) {
        Config config;
        config.rank = rank;
        config.size = ranks;
        config.nrings = rank == 1 ? 3 : 2;
        config.transports = {"inproc"};
        config.timeout_ms = 20'000;
        auto inner = open_store({.url = folder.url(), .job = "slow", .rank = rank});
        if (!inner) {
            told[static_cast<std::size_t>(rank)] = inner.error().message;
            return std::shared_ptr<Store>();
        }
        const auto store = std::make_shared<SlowStore>(std::move(*inner));
        const auto comm = Communicator::create(config, store);
        if (!comm) told[static_cast<std::size_t>(rank)] = comm.error().message;
        return std::shared_ptr<Store>(store);
    };
    std::shared_ptr<Store> kept;  // a directory store forgets what its writers wrote
    std::thread other([&] { kept = join(1); });
    const auto own = join(0);
    other.join();
    join(2);
    for (const std::string& text : told) {
        INFO(text);
        CHECK(text.find("nrings is '3' on rank 1 but '2' on rank 0") != std::string::npos);
    }
}

TEST_CASE("communicator: many requests on several streams, waited for in any order") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        expect_no_problem(run({3, transport}, [](Communicator& comm, Rank rank) -> std::string {
            constexpr int many = 16;
            std::vector<std::vector<float>> data;
            std::vector<std::unique_ptr<Request>> requests;
            for (int i = 0; i < many; ++i) {
                data.emplace_back(static_cast<std::size_t>(1 + i * 3000),
                                  static_cast<float>(rank + i));
                auto request = comm.calls().start(sum_of(data.back().size()), -1, -1,
                                                  data.back().data(), data.back().data());
                if (!request) return request.error().message;
                requests.push_back(std::move(*request));
            }
            for (int i = many - 1; i >= 0; --i) {
                Request& request = *requests[static_cast<std::size_t>(i)];
                if (!comm.progress().wait(request, -1) || request.code != Code::ok)
                    return request.error.message;
                const auto expected = static_cast<float>(3 + 3 * i);
                if (data[static_cast<std::size_t>(i)].back() != expected) return "wrong sum";
            }
            return "";
        }));
    }
}

TEST_CASE("communicator: requests complete while the program only sleeps") {
    expect_no_problem(run({2, "shm"}, [](Communicator& comm, Rank rank) -> std::string {
        std::vector<float> x(300'000, 1.0f);
        if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        auto request = comm.calls().start(sum_of(x.size()), 0, -1, x.data(), x.data());
        if (!request) return request.error().message;
        eventually([&] { return (*request)->done(); });
        return (*request)->done() && x[0] == 2.0f ? "" : "not done without our help";
    }));
}

TEST_CASE("communicator: requests complete unwaited for after many that were waited for at once") {
    const std::string transport = GENERATE("shm", "tcp");
    expect_no_problem(run({2, transport}, [](Communicator& comm, Rank) -> std::string {
        std::vector<float> x(4), sum(4);
        for (int round = 0; round < 100; ++round) {
            x[0] = static_cast<float>(round);
            auto request = comm.calls().start(sum_of(x.size()), 0, -1, x.data(), sum.data());
            if (!request) return request.error().message;
            const bool waits = round % 25 != 24;
            if (waits) comm.progress().wait(**request, -1);
            if (!waits) eventually([&] { return (*request)->done(); });
            if (!(*request)->done()) return "not done without our help";
            if (sum[0] != 2.0f * x[0]) return "wrong sum";
        }
        return "";
    }));
}

TEST_CASE("communicator: two threads wait for requests of one communicator") {
    expect_no_problem(run({2, "shm"}, [](Communicator& comm, Rank) -> std::string {
        for (int round = 0; round < 20; ++round) {
            std::vector<float> a(30'000, 1.0f), b(30'000, 2.0f);
            auto first = comm.calls().start(sum_of(a.size()), 0, -1, a.data(), a.data());
            auto second = comm.calls().start(sum_of(b.size()), 1, -1, b.data(), b.data());
            if (!first || !second) return "start failed";
            std::thread other([&] { comm.progress().wait(**second, -1); });
            comm.progress().wait(**first, -1);
            other.join();
            if (a[1] != 2.0f || b[1] != 4.0f) return "wrong sum";
        }
        return "";
    }));
}

TEST_CASE("communicator: a mismatch fails everyone once, and the next calls match again") {
    for (const char* transport : transports_under_test)
        for (const char* check : {"frames", "strict"}) {
            INFO(transport << " " << check);
            Job job{3, transport};
            job.change = [check](Config& config) {
                config.check = std::string(check) == "strict" ? Check::strict : Check::frames;
            };
            expect_no_problem(run(job, [](Communicator& comm, Rank rank) -> std::string {
                for (int round = 0; round < 5; ++round) {
                    std::vector<float> x(2000, 1.0f);
                    const auto done = comm.calls().run(sum_of(rank == round % 3 ? 2000 : 1000),
                                                       x.data(), x.data());
                    if (done) return "the mismatch was not noticed";
                    if (done.error().code != Code::mismatch) return done.error().message;
                    for (const char* word : {"count 1000", "count 2000"})
                        if (done.error().message.find(word) == std::string::npos)
                            return done.error().message;
                    if (auto problem = allreduce(comm, 5000); !problem.empty()) return problem;
                }
                return "";
            }));
        }
}

TEST_CASE("communicator: strict checking of many calls that others make later") {
    Job job{3, "inproc"};
    job.change = [](Config& config) {
        config.check = Check::strict;
        config.timeout_ms = 600'000;  // of each: the last waits for all the others
    };
    expect_no_problem(run(job, [](Communicator& comm, Rank rank) -> std::string {
        constexpr std::size_t many = tutti::test::sanitized ? 2000 : 6000;
        std::vector<float> x(many, 1.0f);
        std::vector<std::unique_ptr<Request>> requests;
        if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        for (float& value : x) {
            auto request = comm.calls().start(sum_of(1), -1, -1, &value, &value);
            if (!request) return request.error().message;
            requests.push_back(std::move(*request));
        }
        for (const auto& request : requests)
            if (!comm.progress().wait(*request, -1) || request->code != Code::ok)
                return request->error.message;
        return x.back() == 3.0f ? "" : "wrong sum";
    }));
}

TEST_CASE("communicator: abort from another thread ends a waiting call on every rank") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        std::atomic<int> met{0};    // ranks whose first call has ended: the abort would end it
        std::atomic<int> ended{0};  // calls of ranks 0 and 1, which rank 2 never joins
        expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            if (auto problem = allreduce(comm, 10); !problem.empty()) return problem;
            ++met;
            std::thread aborter;
            if (rank == 1) {
                aborter = std::thread([&] {
                    eventually([&] { return met == 3; });
                    std::this_thread::sleep_for(std::chrono::milliseconds(30));
                    comm.abort();
                });
            }
            if (rank == 2) eventually([&] { return ended == 2; });
            const auto done = comm.calls().run(barrier(), nullptr, nullptr);
            ++ended;
            if (aborter.joinable()) aborter.join();
            if (done) return "a barrier succeeded without everyone";
            return done.error().code == Code::aborted && done.error().rank == 1
                       ? ""
                       : done.error().message;
        }));
    }
}

TEST_CASE("communicator: a deadline names the rank that did not call") {
    // Rank 1 has the short deadline and calls when rank 0 has called, so that only rank 2 is
    // missing.
    std::atomic<bool> called{false};
    std::atomic<int> ended{0};
    expect_no_problem(run({3, "inproc"}, [&](Communicator& comm, Rank rank) -> std::string {
        std::vector<float> x(100'000);
        if (rank == 1) eventually([&] { return called.load(); });
        if (rank == 2) eventually([&] { return ended == 2; });
        auto started =
            comm.calls().start(sum_of(x.size()), 0, rank == 1 ? 700 : -1, x.data(), x.data());
        if (rank == 0) called = true;
        if (started) comm.progress().wait(**started, -1);
        ++ended;
        const Error error = started ? (*started)->error : started.error();
        if (error.code != Code::timeout) return "without rank 2: " + error.message;
        return error.rank == 2 || rank == 2 ? "" : error.message;
    }));
}

TEST_CASE(
    "communicator: a call that cannot be made is refused for that, whoever has left by then") {
    expect_no_problem(run({2, "inproc"}, [](Communicator& comm, Rank rank) -> std::string {
        if (rank == 1) return "";
        float x = 1;
        Call call = sum_of(1);
        const auto alone = comm.calls().run(call, &x, &x);
        if (alone || alone.error().rank != 1) return "rank 1 is still there";
        call.algorithm = "hierarchical";
        const auto refused = comm.calls().run(call, &x, &x);
        if (refused) return "two levels on one host";
        const std::string& why = refused.error().message;
        return why.find("all ranks are on one host") != std::string::npos ? "" : why;
    }));
}

TEST_CASE("communicator: plans are found again, and busy ones are not reused") {
    expect_no_problem(run({2, "inproc"}, [](Communicator& comm, Rank) -> std::string {
        std::vector<float> a(64, 1.0f), b(64, 1.0f);
        auto first = comm.calls().start(sum_of(64), 0, -1, a.data(), a.data());
        auto second = comm.calls().start(sum_of(64), 0, -1, b.data(), b.data());
        if (!first || !second) return "start failed";
        comm.progress().wait(**second, -1);
        comm.progress().wait(**first, -1);
        if (a[0] != 2.0f || b[0] != 2.0f) return "wrong sum";
        auto plan = comm.calls().make_plan(sum_of(64), 0);
        if (!plan) return plan.error().message;
        auto running = comm.calls().start(**plan, a.data(), a.data());
        if (!running) return running.error().message;
        const bool refused = !comm.calls().run(**plan, a.data(), a.data()).has_value();
        const bool was_busy = !(*running)->done();
        comm.progress().wait(**running, -1);
        return refused || !was_busy ? "" : "a busy plan was started again";
    }));
}

TEST_CASE("communicator: parts and messages, with ranks as threads") {
    for (const char* transport : transports_under_test)
        expect_no_problem(run({4, transport}, [](Communicator& comm, Rank rank) -> std::string {
            auto part = comm.split(rank % 2, -rank);
            if (!part) return part.error().message;
            if ((*part)->size() != 2 || (*part)->rank() != (rank < 2 ? 1 : 0)) return "wrong part";
            for (std::size_t count : {1ul, 50'000ul}) {
                std::vector<float> x(count, static_cast<float>(rank));
                if (auto done = (*part)->calls().run(sum_of(count), x.data(), x.data()); !done)
                    return done.error().message;
                if (x.back() != static_cast<float>(rank % 2 == 0 ? 2 : 4)) return "wrong sum";
            }
            // Small and large messages around the whole, while the part sums.
            for (std::size_t bytes : {8ul, 300'000ul}) {
                std::vector<std::byte> out(bytes, static_cast<std::byte>(rank)), in(bytes);
                std::vector<float> x(1000, 1.0f);
                auto receive = std::make_unique<Transfer>();
                receive->peer = any_source;
                receive->memory = in.data();
                receive->bytes = bytes;
                auto receiving = comm.messages().start(std::move(receive), -1);
                if (!receiving) return receiving.error().message;
                auto sum = (*part)->calls().start(sum_of(x.size()), 0, -1, x.data(), x.data());
                if (!sum) return sum.error().message;
                Transfer send;
                send.sends = true;
                send.peer = (rank + 1) % 4;
                send.memory = out.data();
                send.bytes = bytes;
                if (auto sent = comm.messages().run(send); !sent) return sent.error().message;
                comm.progress().wait(**receiving, -1);
                (*part)->progress().wait(**sum, -1);
                if (in.back() != static_cast<std::byte>((rank + 3) % 4)) return "wrong message";
                if (x[0] != 2.0f) return "wrong sum beside messages";
            }
            (*part)->destroy();
            return allreduce(comm, 1000);
        }));
}

// Each thread has a communicator of its own; on every rank they come in another order.
TEST_CASE("communicator: two threads split different communicators at the same time") {
    const std::string transport = GENERATE("inproc", "shm", "tcp");
    INFO(transport);
    expect_no_problem(run({3, transport}, [](Communicator& comm, Rank rank) -> std::string {
        std::shared_ptr<Communicator> owns[2];
        for (auto& own : owns) {
            auto made = comm.split(0, rank);
            if (!made) return made.error().message;
            own = std::move(*made);
        }
        std::string problems[2];
        const auto split_often = [&](Communicator& own, std::string& problem) {
            for (int round = 0; round < 40 && problem.empty(); ++round) {
                auto part = own.split(0, rank);
                if (!part) {
                    problem = part.error().message;
                    continue;
                }
                for (const std::size_t count : {1ul, 2000ul}) problem += allreduce(**part, count);
                (*part)->destroy();
            }
        };
        std::thread other([&] { split_often(*owns[1], problems[1]); });
        split_often(*owns[0], problems[0]);
        other.join();
        for (const auto& own : owns) own->destroy();
        return problems[0] + problems[1];
    }));
}

// The answer to a message from anyone opens the same channels as a send to its sender.
TEST_CASE("communicator: messages to a rank while another thread answers that rank") {
    constexpr int rounds = 60;
    for (const char* transport : transports_under_test) {
        INFO(transport);
        const auto body = [](Communicator& comm, Rank rank) -> std::string {
            for (int round = 0; round < rounds; ++round) {
                auto part = comm.split(0, rank);
                if (!part) return part.error().message;
                if (auto problem = send_while_answering(**part, round); !problem.empty())
                    return fmt::format("round {}: {}", round, problem);
                (*part)->destroy();
            }
            return "";
        };
        expect_no_problem(run({2, transport}, body));
    }
}

// The receiver has no channel to the sender yet, and nothing else to do.
TEST_CASE("communicator: the sender hears of a receive from anyone that its message does not fit") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        Job job{2, transport};
        job.change = [](Config& config) { config.timeout_ms = 10'000; };
        expect_no_problem(run(job, [](Communicator& comm, Rank rank) -> std::string {
            std::vector<std::byte> data(rank == 0 ? 100 : 100'000);
            auto started =
                comm.messages().start(message(rank == 1, rank == 1 ? 0 : any_source, 3, data), -1);
            if (!started) return started.error().message;
            comm.progress().wait(**started, -1);
            if ((*started)->code != Code::invalid)
                return "not refused: " + (*started)->error.message;
            return allreduce(comm, 10);
        }));
    }
}

TEST_CASE("communicator: ranks with different tuning files are told so, alike ones choose alike") {
    const JobFolder folder;
    const auto write = [&](Rank rank, const char* text) {
        const std::string path = fmt::format("{}/{}.tuning", folder.path(), rank);
        std::ofstream(path) << text;
        return path;
    };
    const std::string one = write(0, "choose allreduce inproc ranks=2 bytes=0..* circulant\n");
    const std::string other = write(1, "choose allreduce inproc ranks=2 bytes=0..* direct\n");
    Job job{2, "inproc"};
    job.change = [&](Config& config) { config.tuning = one; };
    expect_no_problem(run(job, [](Communicator& comm, Rank) -> std::string {
        const auto choice = comm.planner().choose(sum_of(10));
        if (!choice || choice->name != "circulant") return "the file was not followed";
        if (comm.planner().explain(sum_of(10)).find("line 1 of the tuning file") ==
            std::string::npos)
            return comm.planner().explain(sum_of(10));
        return allreduce(comm, 1000);
    }));
    job.change = [&](Config& config) { config.tuning = config.rank == 1 ? other : one; };
    for (const std::string& problem : run(job, [](Communicator&, Rank) { return "joined"; }))
        REQUIRE(problem.find("tuning is '") != std::string::npos);
    for (const std::string unusable : {"/nowhere", "/"}) {
        job.change = [&](Config& config) { config.tuning = config.rank == 1 ? unusable : one; };
        const auto problems = run(job, [](Communicator&, Rank) { return "joined"; });
        REQUIRE(problems[0].find("tuning is '") != std::string::npos);
        REQUIRE(problems[1].find(fmt::format("'{}' cannot be read", unusable)) !=
                std::string::npos);
    }
}

// Ranks that differ in one of these settings would wait for each other.
TEST_CASE("communicator: ranks with different settings are told so") {
    const std::pair<std::string, void (*)(Config&)> settings[] = {
        {"fabric_ports is '2'", [](Config& c) { c.fabric_ports = 2; }},
        {"device_tile_bytes is '4096'", [](Config& c) { c.device_tile_bytes = 4096; }},
        {"device_rings is '3'", [](Config& c) { c.device_rings = 3; }},
        {"device_split is 'share'", [](Config& c) { c.device_split = DeviceSplit::share; }},
    };
    for (const auto& [words, set] : settings) {
        Job job{2, "inproc"};
        job.change = [set = set](Config& config) {
            if (config.rank == 1) set(config);
        };
        for (const std::string& problem : run(job, [](Communicator&, Rank) { return "joined"; })) {
            INFO(problem);
            REQUIRE(problem.find(words + " on rank 1 but '") != std::string::npos);
        }
    }
}

// A rank that believes in a larger job has no place in the other ranks' control tree.
TEST_CASE("communicator: a rank past the end of a job is told so, and the job works on") {
    const JobFolder folder;
    std::vector<std::string> told(3);
    std::atomic<int> joined{0};
    std::vector<std::thread> threads;
    for (const Rank rank : {0, 1, 2})
        threads.emplace_back([&, rank] {
            Config config;
            config.rank = rank;
            config.size = rank == 2 ? 3 : 2;
            config.store = folder.url();
            config.transports = {"inproc"};
            config.timeout_ms = 20'000;
            while (rank == 2 && joined < 2) std::this_thread::yield();
            auto comm = Communicator::create(config, nullptr);
            if (!comm) {
                told[static_cast<std::size_t>(rank)] = comm.error().message;
                ++joined;
                return;
            }
            ++joined;
            while (joined < 3) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            told[static_cast<std::size_t>(rank)] = allreduce(**comm, 1000);
            (*comm)->destroy();
        });
    for (auto& thread : threads) thread.join();
    INFO(told[2]);
    CHECK(told[2].find("size is '3' on rank 2 but '2' on rank 0") != std::string::npos);
    CHECK(told[0] == "");
    CHECK(told[1] == "");
}

TEST_CASE("communicator: parts come and go on every transport and leave no memory behind") {
    constexpr int warm = 30, wanted = test::sanitized ? 40 : 130;
    for (const char* transport : transports_under_test) {
        INFO(transport);
        std::atomic<long> before{0}, after{0};
        expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            for (int i = 0; i < wanted; ++i) {
                if (i == warm && rank == 0) before = own_bytes();
                auto part = comm.split(i % 2 == 0 ? 0 : rank % 2, -rank);
                if (!part) return part.error().message;
                for (std::size_t count : {1ul, 50'000ul})
                    if (auto problem = allreduce(**part, count); !problem.empty()) return problem;
                // Some leave while others are still busy with the last operation.
                (*part)->destroy();
            }
            if (rank == 0) after = own_bytes();
            return allreduce(comm, 1000);
        }));
        // Without the sanitizers' own.
        if (!test::sanitized) REQUIRE(after - before < 4 << 20);
    }
}
