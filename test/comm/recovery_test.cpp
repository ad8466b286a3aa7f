// Agreement and smaller communicators among ranks that are alive. test/recovery kills processes.
#include <atomic>
#include <numeric>

#include "comm/job.h"
#include "support/sanitized.h"

using namespace comm_test;

namespace {

constexpr std::string_view shrink_name = "tutti_comm_shrink";

std::string sum_over(Communicator& comm, std::size_t count) {
    std::vector<float> x(count, static_cast<float>(comm.rank() + 1));
    if (auto done = comm.calls().run(sum_of(count), x.data(), x.data()); !done)
        return done.error().message;
    const auto expected = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
    return x.front() == expected && x.back() == expected ? "" : "a wrong sum";
}

/// Shrinks, checks the members by their old ranks, and works with the result.
std::string shrink_to(Communicator& comm, const std::vector<Rank>& members,
                      const std::vector<Rank>& leavers = {}) {
    auto smaller = comm.recovery().shrink(shrink_name, leavers);
    if (!smaller) return smaller.error().message;
    Communicator& part = **smaller;
    if (part.size() != static_cast<Rank>(members.size()))
        return fmt::format("{} members", part.size());
    if (members[static_cast<std::size_t>(part.rank())] != comm.rank()) return "a wrong rank";
    std::vector<Rank> gone;
    for (Rank rank = 0; rank < comm.size(); ++rank)
        if (std::find(members.begin(), members.end(), rank) == members.end()) gone.push_back(rank);
    if (comm.recovery().lost() != gone) return "other ranks are lost";
    for (const std::size_t count : {1ul, 100'000ul})
        if (auto problem = sum_over(part, count); !problem.empty()) return problem;
    auto copy = part.dup();
    if (!copy) return copy.error().message;
    auto problem = sum_over(**copy, 10);
    (*copy)->destroy();
    part.destroy();
    return problem;
}

std::vector<Rank> all_but(Rank size, const std::vector<Rank>& gone) {
    std::vector<Rank> members;
    for (Rank rank = 0; rank < size; ++rank)
        if (std::find(gone.begin(), gone.end(), rank) == gone.end()) members.push_back(rank);
    return members;
}

}  // namespace

TEST_CASE("recovery: ranks agree on the bits that all have set") {
    for (const char* transport : transports_under_test)
        for (const Rank ranks : {1, 2, 3, 9}) {
            INFO(transport << " ranks " << ranks);
            expect_no_problem(run({ranks, transport}, [&](Communicator& comm, Rank rank) {
                for (uint64_t round = 0; round < 50; ++round) {
                    const uint64_t mine = ~(uint64_t{1} << rank) & ~(round << 32);
                    const auto bits = comm.recovery().agree("tutti_comm_agree", mine);
                    if (!bits) return bits.error().message;
                    const uint64_t expected = ~((uint64_t{1} << ranks) - 1) & ~(round << 32);
                    if (*bits != expected) return fmt::format("{:x} in round {}", *bits, round);
                    if (auto problem = sum_over(comm, 3); !problem.empty()) return problem;
                }
                return std::string(comm.recovery().lost().empty() ? "" : "ranks are lost");
            }));
        }
}

TEST_CASE("recovery: a healthy communicator shrinks to its own size") {
    for (const char* transport : transports_under_test)
        for (const Rank ranks : {1, 2, 5}) {
            const bool manual = GENERATE(false, true);
            INFO(transport << " ranks " << ranks << (manual ? " manual" : ""));
            Job job{ranks, transport};
            if (manual) job.change = [](Config& config) { config.progress = ProgressMode::manual; };
            expect_no_problem(run(job, [&](Communicator& comm, Rank) -> std::string {
                for (int round = 0; round < 5; ++round)
                    if (auto problem = shrink_to(comm, all_but(ranks, {})); !problem.empty())
                        return problem;
                return sum_over(comm, 10);
            }));
        }
}

TEST_CASE("recovery: a rank that has left is outside, and the next one shrinks on") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        expect_no_problem(run({5, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            if (rank == 0) return "";  // it destroys its communicator
            auto first = comm.recovery().shrink(shrink_name, {});
            if (!first) return first.error().message;
            if ((*first)->size() != 4) return "a wrong size";
            if (rank == 4) return (*first)->destroy(), "";
            auto problem = shrink_to(**first, {0, 1, 2});
            (*first)->destroy();
            return problem;
        }));
    }
}

TEST_CASE("recovery: agree and shrink work after a revoke, an abort and a timeout") {
    for (const char* transport : transports_under_test)
        for (const Code way : {Code::revoked, Code::aborted, Code::timeout}) {
            INFO(transport << " " << code_name(way));
            Job job{4, transport};
            std::atomic<int> failed{0};
            if (way == Code::timeout) job.change = [](Config& config) { config.timeout_ms = 2000; };
            expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
                if (rank == 2) {
                    if (way == Code::revoked) comm.revoke();
                    if (way == Code::aborted) comm.abort();
                    if (!eventually([&] { return failed == 3; })) return "nobody failed";
                } else {
                    std::vector<float> x(1000);
                    const auto done = comm.calls().run(sum_of(1000), x.data(), x.data());
                    ++failed;
                    if (done || done.error().code != way) return "no such error";
                }
                if (const auto bits = comm.recovery().agree("tutti_comm_agree", 7);
                    !bits || *bits != 7)
                    return bits ? "wrong bits" : bits.error().message;
                if (auto problem = shrink_to(comm, all_but(4, {})); !problem.empty())
                    return problem;
                return shrink_to(comm, all_but(4, {}));
            }));
        }
}

TEST_CASE("recovery: shrink_without leaves ranks out, and ends their operations") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        expect_no_problem(run({5, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            const std::vector<Rank> leavers = {0, 3};
            if (rank == 0 || rank == 3) {
                std::vector<float> x(1000);
                const auto done = comm.calls().run(sum_of(1000), x.data(), x.data());
                if (done) return "the operation succeeded";
                return done.error().code == Code::revoked ? "" : done.error().message;
            }
            return shrink_to(comm, all_but(5, leavers), leavers);
        }));
    }
}

TEST_CASE("recovery: a rank that does not call is named, and can be left out") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        Job job{4, transport};
        job.change = [](Config& config) { config.timeout_ms = 1500; };
        std::atomic<int> over{0};
        expect_no_problem(run(job, [&](Communicator& comm, Rank rank) -> std::string {
            if (rank == 1) {
                if (!eventually([&] { return over == 3; })) return "it took too long";
                const int64_t start_ns = now_ns();
                const auto late = comm.recovery().shrink(shrink_name, {});
                if (late) return "it succeeded without the others";
                return now_ns() - start_ns < 1'000'000'000 ? "" : error_text(late.error());
            }
            const auto smaller = comm.recovery().shrink(shrink_name, {});
            std::string problem = "it succeeded";
            if (!smaller) {
                const Error& error = smaller.error();
                problem = error.code == Code::timeout && error.rank == 1 &&
                                  contains(error_text(error), "rank 1 did not call it")
                              ? shrink_to(comm, all_but(4, {1}), {1})
                              : error_text(error);
            }
            ++over;
            return problem;
        }));
    }
}

TEST_CASE("recovery: an abort ends agree on all ranks, and the next call works") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        std::atomic<int> over{0};
        expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            // An abort before the call does not end it, so this one is repeated.
            std::thread aborting;
            if (rank == 0)
                aborting = std::thread([&] {
                    eventually([&] {
                        comm.abort();
                        return over >= 2;
                    });
                });
            if (rank == 2 && !eventually([&] { return over >= 2; })) return "it took too long";
            const auto bits = comm.recovery().agree("tutti_comm_agree", 1);
            ++over;
            if (aborting.joinable()) aborting.join();
            if (bits) return "it succeeded";
            if (bits.error().code != Code::aborted || bits.error().rank != 0)
                return error_text(bits.error());
            const auto next = comm.recovery().agree("tutti_comm_agree", 6);
            return next && *next == 6 ? "" : "the next call failed";
        }));
    }
}

TEST_CASE("recovery: wrong calls get an error, and change nothing") {
    expect_no_problem(run({3, "inproc"}, [&](Communicator& comm, Rank rank) -> std::string {
        const auto expect = [&](const std::vector<Rank>& leavers, std::string_view text) {
            const auto smaller = comm.recovery().shrink(shrink_name, leavers);
            if (smaller) return std::string("it succeeded");
            const Error& error = smaller.error();
            return error.code == Code::invalid && contains(error.message, text) ? std::string()
                                                                                : error.message;
        };
        for (const auto& [leavers, text] : std::vector<std::pair<std::vector<Rank>, std::string>>{
                 {{-1}, "rank -1, which the communicator lacks"},
                 {{3}, "rank 3, which the communicator lacks"},
                 {{rank}, "which is this rank itself"},
                 {{(rank + 1) % 3, (rank + 1) % 3}, "twice"}})
            if (auto problem = expect(leavers, text); !problem.empty()) return problem;
        // Different calls: all ranks hear of it.
        const auto bits = rank == 1 ? comm.recovery().agree("tutti_comm_agree", 1)
                                    : comm.recovery().shrink(shrink_name, {}).map([](const auto&) {
                                          return uint64_t{0};
                                      });
        if (bits || bits.error().code != Code::mismatch) return "the mismatch was not noticed";
        return shrink_to(comm, all_but(3, {}));
    }));
}

TEST_CASE("recovery: a destroyed communicator refuses to go on") {
    expect_no_problem(run({2, "inproc"}, [&](Communicator& comm, Rank) -> std::string {
        auto part = comm.split(0, 0);
        if (!part) return part.error().message;
        (*part)->destroy();
        const auto smaller = (*part)->recovery().shrink(shrink_name, {});
        const auto bits = (*part)->recovery().agree("tutti_comm_agree", 1);
        const auto larger = grow(**part, 1);
        for (const Error* error : {&smaller.error(), &bits.error(), &larger.error()})
            if (error->message.find("the communicator was destroyed") == std::string::npos)
                return error->message;
        return "";
    }));
}

TEST_CASE("recovery: of two threads that call at once one is refused") {
    std::atomic<int> refused{0};
    expect_no_problem(run({2, "inproc"}, [&](Communicator& comm, Rank rank) -> std::string {
        if (rank == 1) {
            if (!eventually([&] { return refused == 1; })) return "none was refused";
            return comm.recovery().agree("tutti_comm_agree", 5) ? "" : "it failed";
        }
        std::atomic<int> agreed{0};
        const auto call = [&] {
            const auto bits = comm.recovery().agree("tutti_comm_agree", 7);
            if (bits && *bits == 5) ++agreed;
            if (!bits && bits.error().code == Code::invalid) ++refused;
        };
        std::thread other(call);
        call();
        other.join();
        return agreed == 1 && refused == 1 ? "" : "not one of each";
    }));
}

TEST_CASE("recovery: ranks that return at once and leave take no decision along") {
    for (const char* transport : transports_under_test)
        for (int round = 0; round < (tutti::test::sanitized ? 3 : 10); ++round) {
            INFO(transport << " round " << round);
            expect_no_problem(run({7, transport}, [&](Communicator& comm, Rank rank) {
                const auto bits = comm.recovery().agree("tutti_comm_agree", ~uint64_t{0} << rank);
                if (!bits) return bits.error().message;
                return std::string(*bits == ~uint64_t{0} << 6 ? "" : "wrong bits");
            }));
        }
}

TEST_CASE("recovery: two communicators shrink at once in different orders") {
    for (const char* transport : transports_under_test) {
        INFO(transport);
        expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank) -> std::string {
            auto copy = comm.dup();
            if (!copy) return copy.error().message;
            std::string problem;
            std::thread other([&] {
                for (int round = 0; round < 5 && problem.empty(); ++round)
                    problem = shrink_to(**copy, all_but(3, {}));
            });
            std::string own;
            for (int round = 0; round < 5 && own.empty(); ++round)
                own = shrink_to(comm, all_but(3, {}));
            other.join();
            (*copy)->destroy();
            return own.empty() ? problem : own;
        }));
    }
}

TEST_CASE("recovery: hundreds of smaller communicators leave nothing behind") {
    const auto open_files = [] {
        const std::filesystem::directory_iterator all("/proc/self/fd"), end;
        return std::distance(all, end);
    };
    for (const char* transport : transports_under_test) {
        INFO(transport);
        std::ptrdiff_t early = 0, late = 0;
        expect_no_problem(run({3, transport}, [&](Communicator& comm, Rank rank) -> std::string {
            constexpr int rounds = tutti::test::sanitized ? 40 : 300;
            for (int round = 0; round < rounds; ++round) {
                if (auto problem = shrink_to(comm, all_but(3, {})); !problem.empty())
                    return problem;
                // Between the barriers no rank opens or closes anything.
                if (round != rounds / 10 && round != rounds - 1) continue;
                if (!comm.calls().run(barrier(), nullptr, nullptr)) return "no barrier";
                if (rank == 0) (round == rounds - 1 ? late : early) = open_files();
                if (!comm.calls().run(barrier(), nullptr, nullptr)) return "no barrier";
            }
            return "";
        }));
        CHECK(late <= early);
    }
}
