// Issuing where memory is refused: whatever becomes of the call, nothing is left half started.
#include <new>

#include "comm/job.h"
#include "p2p/transfer.h"
#include "support/allocations.h"

using namespace comm_test;

namespace {

constexpr long most_allocations = 24;  // of one call; more are not refused
constexpr int before = 40;             // calls, so that the flight recorder has had to grow

/// The call's result as the C boundary has it, with one of this thread's allocations refused.
template <typename Run>
std::string refusing(long which, Run run) {
    refused_in = which;
    std::string problem;
    try {
        const Result<> done = run();
        refused_in = -1;
        if (!done) problem = done.error().message;
    } catch (const std::bad_alloc&) {
        refused_in = -1;
        problem = "out of memory";
    }
    return problem;
}

Job strict_job(Check check) {
    Job job{2, "inproc"};
    job.change = [check](Config& config) {
        config.check = check;
        config.timeout_ms = 20'000;
    };
    return job;
}

std::string call_often(Communicator& comm, int times) {
    float x = 1.0f;
    for (int i = 0; i < times; ++i)
        if (auto done = comm.calls().run(sum_of(1), &x, &x); !done) return done.error().message;
    return "";
}

/// A rank whose call failed has told the other, or tells it by leaving.
void expect_ends(Check check, const std::function<Result<>(Communicator&)>& call) {
    for (long which = 0; which < most_allocations; ++which) {
        INFO("allocation " << which);
        expect_no_problem(run(strict_job(check), [&](Communicator& comm, Rank rank) -> std::string {
            std::string problem = call_often(comm, 1);
            if (problem.empty())
                problem = refusing(rank == 0 ? which : -1, [&] { return call(comm); });
            if (problem.empty() || rank == 0) return "";
            const bool told = problem.find("memory") != problem.npos ||
                              problem.find("rank 0 has left") != problem.npos;
            return told ? "" : problem;
        }));
    }
}

Result<> pass_to_rank_1(Communicator& comm) {
    std::array<std::byte, 100> data{};
    Transfer transfer;
    transfer.sends = comm.rank() == 0;
    transfer.peer = 1 - comm.rank();
    transfer.memory = data.data();
    transfer.bytes = data.size();
    return comm.messages().run(transfer);
}

}  // namespace

TEST_CASE("no memory: the flight recorder does without") {
    expect_no_problem(run(strict_job(Check::frames), [](Communicator& comm, Rank) {
        for (int i = 0; i < before; ++i) {
            const auto problem = refusing(0, [&]() -> Result<> {
                float x = 1.0f;
                return i == 0 ? Result<>() : comm.calls().run(sum_of(1), &x, &x);
            });
            if (i > 1 && !problem.empty()) return problem;
            if (auto first = i == 0 ? call_often(comm, 1) : ""; !first.empty()) return first;
        }
        return call_often(comm, before);
    }));
}

TEST_CASE("no memory: a call that cannot be agreed on ends, and so does the communicator") {
    expect_ends(Check::strict, [](Communicator& comm) -> Result<> {
        float x = 1.0f;
        return comm.calls().run(sum_of(1), &x, &x);
    });
}

TEST_CASE("no memory: a message that cannot be posted ends, and so does the communicator") {
    expect_ends(Check::frames, pass_to_rank_1);
}
