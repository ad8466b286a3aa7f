// Several threads wait beside the service thread: the thread that wakes first does not consume the
// wake-up of another. A thread without its wake-up sleeps until it checks its deadline, which takes
// long here.
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <memory>

#include "base/clock.h"
#include "comm/job.h"
#include "p2p/transfer.h"

using namespace comm_test;

namespace {

constexpr int longest_sleep_ms = 30'000;
constexpr int64_t stall_ns = 20'000'000'000;  // no wake-up takes that long, a missed one does
constexpr std::size_t long_count = std::size_t{1} << 18;  // many messages both ways

Job two_streams(const char* transport) {
    Job job{2, transport};
    job.change = [](Config& config) {
        config.nrings = 2;
        config.longest_sleep_ms = longest_sleep_ms;
    };
    return job;
}

/// Waiting threads have stopped spinning and sleep after that.
void begin_sleep() {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// Signals between the two ranks outside of tutti, so that they wake no thread in it.
struct SleepSigns {
    std::atomic<int> asleep{0};  // the last round in which rank 0's threads are
    std::atomic<int64_t> began_ns{0};
    std::atomic<int> stalled{0};
    std::atomic<bool> broken{false};

    void await(int round) const {
        while (asleep < round && !over()) std::this_thread::yield();
    }
    bool over() const { return broken || stalled > 0; }
    void took(int64_t ns) { stalled += ns > stall_ns ? 1 : 0; }
};

struct Sum {
    explicit Sum(std::size_t count) : data(count, 1.0f) {}
    std::string start(Communicator& comm, int stream) {
        std::fill(data.begin(), data.end(), 1.0f);
        auto started =
            comm.calls().start(sum_of(data.size()), stream, -1, data.data(), data.data());
        if (!started) return started.error().message;
        request = std::move(*started);
        return "";
    }
    std::string wait(Communicator& comm) {
        comm.progress().wait(*request, -1);
        if (!request->error.message.empty()) return request->error.message;
        return data.back() == 2.0f ? "" : "wrong sum";
    }
    std::string run(Communicator& comm, int stream) {
        std::string problem = start(comm, stream);
        return problem.empty() ? wait(comm) : problem;
    }
    std::vector<float> data;
    std::unique_ptr<Request> request;
};

/// One number from rank 1 to rank 0.
struct Message {
    std::string start(Communicator& comm) {
        auto transfer = std::make_unique<Transfer>();
        transfer->sends = comm.rank() == 1;
        transfer->peer = 1 - comm.rank();
        transfer->memory = data.data();
        transfer->bytes = data.size();
        auto started = comm.messages().start(std::move(transfer), -1);
        if (!started) return started.error().message;
        request = std::move(*started);
        return "";
    }
    std::string wait(Communicator& comm) {
        comm.progress().wait(*request, -1);
        return request->error.message;
    }
    std::array<std::byte, 4> data{};
    std::unique_ptr<Request> request;
};

/// Plays the rounds, after first contacts, which need both sides.
template <typename Round>
std::string play(const std::vector<Communicator*>& comms, SleepSigns& signs, Round round) {
    Sum first(1);
    std::string problem;
    for (Communicator* comm : comms) {
        Message message;
        problem = message.start(*comm);
        if (problem.empty()) problem = message.wait(*comm);
        for (int stream = 0; stream < 2 && problem.empty(); ++stream)
            problem = first.run(*comm, stream);
        if (!problem.empty()) return problem;
    }
    constexpr int rounds = 12;
    for (int number = 1; number <= rounds && problem.empty() && !signs.over(); ++number)
        problem = round(number);
    if (!problem.empty()) signs.broken = true;
    return problem;
}

/// Rank 0 sleeps on a message that rank 1 sends once both have been through a long sum, for which
/// nobody waits there. When that is begun, the thread sleeps already, or not yet.
std::string long_one_beside(Communicator& slept_on, Communicator& other, SleepSigns& signs,
                            int number, bool asleep_before) {
    Message last;
    Sum beside(long_count);
    std::string problem;
    if (slept_on.rank() == 1) {
        signs.await(number);
        const int64_t began = now_ns();
        problem = beside.run(other, 1);
        signs.took(now_ns() - began);
        if (problem.empty()) problem = last.start(slept_on);
        return problem.empty() ? last.wait(slept_on) : problem;
    }
    if (!asleep_before) problem = beside.start(other, 1);
    if (problem.empty()) problem = last.start(slept_on);
    if (!problem.empty()) return problem;
    std::string waited;
    std::thread sleeper([&] { waited = last.wait(slept_on); });
    begin_sleep();
    if (asleep_before) problem = beside.start(other, 1);
    begin_sleep();
    signs.broken = !problem.empty();
    signs.asleep = number;
    sleeper.join();
    if (problem.empty()) problem = beside.wait(other);
    return problem.empty() ? waited : problem;
}

/// A voluntary context switch of this thread is a sleep.
long times_asleep() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

int64_t processor_ms() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    const auto ms = [](const timeval& t) { return t.tv_sec * 1000 + t.tv_usec / 1000; };
    return ms(usage.ru_utime) + ms(usage.ru_stime);
}

/// Rank 0 waits for a message on each of them, on a thread each, until rank 1 sends them, late.
std::string wait_beside(const std::vector<Communicator*>& comms, std::atomic<long>& most) {
    std::vector<Message> messages(comms.size());
    std::string problem;
    for (std::size_t i = 0; i < comms.size() && problem.empty(); ++i) {
        Message first;
        problem = first.start(*comms[i]);
        if (problem.empty()) problem = first.wait(*comms[i]);
    }
    if (!problem.empty()) return problem;
    const bool sends = comms[0]->rank() == 1;
    if (sends) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (std::size_t i = 0; i < comms.size() && problem.empty(); ++i)
        problem = messages[i].start(*comms[i]);
    if (!problem.empty()) return problem;
    std::vector<std::string> problems(comms.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < comms.size(); ++i)
        threads.emplace_back([&, i] {
            const long before = times_asleep();
            problems[i] = messages[i].wait(*comms[i]);
            const long times = times_asleep() - before;
            for (long known = most; !sends && known < times;)
                if (most.compare_exchange_weak(known, times)) break;
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& one : problems)
        if (!one.empty()) return one;
    return "";
}

}  // namespace

TEST_CASE("waiting: threads beside each other sleep until something is there for them") {
    constexpr std::size_t threads = 4;
    constexpr long few = 500;  // looking every twenty microseconds, it is thousands
    for (const char* transport : transports_under_test)
        for (const ProgressMode progress : {ProgressMode::thread, ProgressMode::manual})
            for (const bool parts : {false, true}) {
                INFO(transport << (parts ? ", communicators" : ", requests of one communicator")
                               << (progress == ProgressMode::manual ? ", manual" : ""));
                Job job = two_streams(transport);
                job.change = [progress, change = job.change](Config& config) {
                    change(config);
                    config.progress = progress;
                };
                std::atomic<long> most{0};
                expect_no_problem(run(job, [&](Communicator& comm, Rank) -> std::string {
                    std::vector<std::shared_ptr<Communicator>> made;
                    std::vector<Communicator*> comms(threads, &comm);
                    for (std::size_t i = 0; i < threads && parts; ++i) {
                        auto part = comm.split(0, comm.rank());
                        if (!part) return part.error().message;
                        comms[i] = made.emplace_back(std::move(*part)).get();
                    }
                    const auto problem = wait_beside(comms, most);
                    for (const auto& part : made) part->destroy();
                    return problem;
                }));
                CHECK(most < few);
            }
}

TEST_CASE("waiting: for a plan's last run takes little of the processor") {
    constexpr int late_ms = 1000;
    for (const ProgressMode progress : {ProgressMode::thread, ProgressMode::manual}) {
        Job job{2, "shm"};
        job.change = [progress](Config& config) { config.progress = progress; };
        expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
            float x = 1.0f;
            auto plan = comm.calls().make_plan(sum_of(1), -1);
            if (!plan) return plan.error().message;
            if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(late_ms));
            auto started = comm.calls().start(**plan, &x, &x);
            if (!started) return started.error().message;
            const int64_t before_ms = processor_ms();
            comm.progress().wait_for_last_run(**plan);
            const int64_t took_ms = processor_ms() - before_ms;
            if ((*plan)->busy_anywhere()) return "it is not over";
            comm.progress().wait(**started, -1);
            return took_ms < late_ms / 3 ? "" : fmt::format("it took {} ms", took_ms);
        }));
    }
}

TEST_CASE("waiting: a thread that gives up leaves the others their wake-ups") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        SleepSigns signs;
        expect_no_problem(run(two_streams(transport), [&](Communicator& comm, Rank rank) {
            return play({&comm}, signs, [&](int number) {
                Message slept_on;
                Sum given_up(1);
                std::string problem;
                if (rank == 1) {
                    signs.await(number);
                    signs.began_ns = now_ns();
                    problem = slept_on.start(comm);
                    if (problem.empty()) problem = slept_on.wait(comm);
                    return problem.empty() ? given_up.run(comm, 1) : problem;
                }
                problem = slept_on.start(comm);
                if (problem.empty()) problem = given_up.start(comm, 1);
                if (!problem.empty()) return problem;
                std::string waited;
                std::thread sleeper([&] {
                    waited = slept_on.wait(comm);
                    signs.took(now_ns() - signs.began_ns);
                });
                begin_sleep();
                comm.progress().wait(*given_up.request, 5);
                begin_sleep();
                signs.asleep = number;
                sleeper.join();
                problem = given_up.wait(comm);
                return problem.empty() ? waited : problem;
            });
        }));
        CHECK(signs.stalled == 0);
    }
}

TEST_CASE("waiting: what is begun while another thread sleeps goes on") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        SleepSigns signs;
        expect_no_problem(run(two_streams(transport), [&](Communicator& comm, Rank) {
            return play({&comm}, signs, [&](int number) {
                return long_one_beside(comm, comm, signs, number, true);
            });
        }));
        CHECK(signs.stalled == 0);
    }
}

TEST_CASE("waiting: a sleeping thread takes no wake-up of the service thread along") {
    for (const char* transport : transports_under_test)
        for (const bool asleep_before : {false, true}) {
            INFO(transport << (asleep_before ? ", begun later" : ", begun before"));
            SleepSigns signs;
            expect_no_problem(
                run(two_streams(transport), [&](Communicator& comm, Rank) -> std::string {
                    auto part = comm.split(0, comm.rank());
                    if (!part) return part.error().message;
                    const auto problem = play({&comm, part->get()}, signs, [&](int number) {
                        return long_one_beside(comm, **part, signs, number, asleep_before);
                    });
                    (*part)->destroy();
                    return problem;
                }));
            CHECK(signs.stalled == 0);
        }
}
