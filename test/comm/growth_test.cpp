// Newcomers join a running job whose ranks are threads. test/recovery kills processes.
#include <latch>

#include "comm/growth/growth.h"
#include "comm/job.h"

using namespace comm_test;

namespace {

std::string use(Communicator& comm) {
    for (const std::size_t count : {1ul, 100'000ul}) {
        std::vector<float> x(count, static_cast<float>(comm.rank() + 1));
        if (auto done = comm.calls().run(sum_of(count), x.data(), x.data()); !done)
            return done.error().message;
        if (x.back() != static_cast<float>(comm.size() * (comm.size() + 1) / 2))
            return "a wrong sum";
    }
    auto copy = comm.dup();
    if (!copy) return copy.error().message;
    auto half = (*copy)->split(comm.rank() % 2, 0);
    if (!half) return half.error().message;
    std::vector<float> x(10, 1);
    if (auto done = (*half)->calls().run(sum_of(10), x.data(), x.data()); !done)
        return done.error().message;
    (*half)->destroy();
    (*copy)->destroy();
    return "";
}

/// Newcomers on threads of their own. body gets their communicator, or the error.
class Newcomers {
public:
    using Body = std::function<std::string(Result<std::shared_ptr<Communicator>>)>;

    Newcomers(int count, Config config, const Body& body)
        : problems_(static_cast<std::size_t>(count)) {
        config.join = true;
        for (std::string& problem : problems_)
            threads_.emplace_back(
                [&problem, config, body] { problem = body(join_running_job(config, nullptr)); });
    }
    ~Newcomers() { join(); }
    Newcomers(const Newcomers&) = delete;

    std::vector<std::string> join() {
        for (std::thread& thread : threads_) thread.join();
        threads_.clear();
        return problems_;
    }

private:
    std::vector<std::string> problems_;
    std::vector<std::thread> threads_;
};

Config settings(const char* transport, const std::string& store) {
    Config config;
    config.store = store;
    config.transports = {transport};
    config.timeout_ms = 60'000;
    return config;
}

}  // namespace

TEST_CASE("growth: members keep their ranks, and newcomers come after them") {
    for (const char* transport : transports_under_test)
        for (const auto& [ranks, count] : {std::pair{1, 1}, {2, 1}, {3, 4}}) {
            INFO(transport << " " << ranks << " + " << count);
            const JobFolder folder;
            const Config config = settings(transport, folder.url());
            Newcomers newcomers(count, config, [&](auto joined) -> std::string {
                if (!joined) return joined.error().message;
                if ((*joined)->rank() < ranks) return "a newcomer has a member's rank";
                auto problem = use(**joined);
                (*joined)->destroy();
                return problem;
            });
            Job job{ranks, transport};
            job.change = [&](Config& c) { c.store = folder.url(); };
            expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
                auto larger = grow(comm, count);
                if (!larger) return larger.error().message;
                if ((*larger)->rank() != rank || (*larger)->size() != ranks + count)
                    return "a wrong place";
                if (auto problem = use(**larger); !problem.empty()) return problem;
                if (auto problem = use(comm); !problem.empty()) return problem;
                (*larger)->destroy();
                return "";
            }));
            expect_no_problem(newcomers.join());
        }
}

TEST_CASE("growth: too few newcomers, and different numbers") {
    const JobFolder folder;
    Config config = settings("shm", folder.url());
    config.timeout_ms = 3000;
    Newcomers one(1, config, [&](auto joined) -> std::string {
        if (joined) return "it joined";
        return joined.error().code == Code::timeout ? "" : joined.error().message;
    });
    Job job{2, "shm"};
    job.change = [&](Config& c) {
        c.store = folder.url();
        c.timeout_ms = 3000;
    };
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        const auto ends_with = [&](Rank count, Code code, std::string_view part) -> std::string {
            auto larger = grow(comm, count);
            if (larger) return "it grew";
            const Error& error = larger.error();
            if (error.code == code && error.message.find(part) != std::string::npos) return "";
            return error.message;
        };
        if (auto problem = ends_with(2, Code::timeout, "1 of 2 newcomers came within 3000 ms");
            !problem.empty())
            return problem;
        if (auto problem = ends_with(rank + 1, Code::mismatch, "different numbers of newcomers");
            !problem.empty())
            return problem;
        if (auto problem = ends_with(0, Code::invalid, "0 is no number of newcomers");
            !problem.empty())
            return problem;
        return use(comm);
    }));
    expect_no_problem(one.join());
}

TEST_CASE("growth: after a rank has left, a smaller communicator grows") {
    const JobFolder folder;
    const Config config = settings("tcp", folder.url());
    std::latch shrunk(2);
    Job job{3, "tcp"};
    job.change = [&](Config& c) { c.store = folder.url(); };
    Newcomers newcomers(1, config, [&](auto joined) -> std::string {
        if (!joined) return joined.error().message;
        if ((*joined)->rank() != 2) return "not the last rank";
        auto problem = use(**joined);
        (*joined)->destroy();
        return problem;
    });
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        if (rank == 0) {
            comm.destroy();
            return "";
        }
        std::vector<float> x(10, 1);
        if (comm.calls().run(sum_of(10), x.data(), x.data())) return "rank 0 took part";
        auto early = grow(comm, 1);
        if (early || early.error().code != Code::peer_lost) return "it grew without rank 0";
        auto smaller = comm.recovery().shrink("tutti_comm_shrink", {});
        if (!smaller) return smaller.error().message;
        auto larger = grow(**smaller, 1);
        if (!larger) return larger.error().message;
        auto problem = use(**larger);
        (*larger)->destroy();
        (*smaller)->destroy();
        return problem;
    }));
    expect_no_problem(newcomers.join());
}

TEST_CASE("growth: without threads of the library") {
    const JobFolder folder;
    Config config = settings("shm", folder.url());
    config.progress = ProgressMode::manual;
    Newcomers newcomers(2, config, [&](auto joined) -> std::string {
        if (!joined) return joined.error().message;
        auto problem = use(**joined);
        (*joined)->destroy();
        return problem;
    });
    Job job{2, "shm"};
    job.change = [&](Config& c) {
        c.store = folder.url();
        c.progress = ProgressMode::manual;
    };
    expect_no_problem(run(job, [&](Communicator& comm, Rank) -> std::string {
        auto larger = grow(comm, 2);
        if (!larger) return larger.error().message;
        auto problem = use(**larger);
        (*larger)->destroy();
        return problem;
    }));
    expect_no_problem(newcomers.join());
}

TEST_CASE("growth: an abort on another thread ends it on all ranks") {
    const JobFolder folder;
    Job job{2, "shm"};
    job.change = [&](Config& c) { c.store = folder.url(); };
    expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
        std::thread aborting;
        if (rank == 0)
            aborting = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                comm.abort();
            });
        const int64_t start_ns = now_ns();
        const auto larger = grow(comm, 1);
        if (aborting.joinable()) aborting.join();
        if (larger) return "it grew";
        if (larger.error().code != Code::aborted) return larger.error().message;
        return now_ns() - start_ns < soon_ns / 2 ? "" : "it came late";
    }));
}
