// Calls that go on after a failure, and cannot.
#include <array>
#include <latch>
#include <string>
#include <thread>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::regrouping {
namespace {

tutti_status agree(tutti_comm* comm) {
    uint64_t bits = 1;
    return tutti_comm_agree(comm, &bits);
}

tutti_status shrink_without(tutti_comm* comm, const std::vector<int>& ranks) {
    tutti_comm* smaller = nullptr;
    const tutti_status status =
        tutti_comm_shrink_without(comm, ranks.data(), ranks.size(), &smaller);
    tutti_comm_destroy(smaller);
    return status;
}

void leave_out_wrong_ranks(Ledger& ledger) {
    run_job(ledger, "wrong leavers", {}, [&](tutti_comm* comm, int rank) {
        for (const auto& ranks : {std::vector{2}, {-1}, {rank}, {1 - rank, 1 - rank}})
            ledger.take("a rank that cannot be left out", shrink_without(comm, ranks),
                        {.names = "tutti_comm_shrink_without", .reporter = rank});
    });
}

void call_differently(Ledger& ledger) {
    run_job(ledger, "different calls", {}, [&](tutti_comm* comm, int rank) {
        const tutti_status status = rank == 1 ? agree(comm) : shrink_without(comm, {});
        // Either rank may have been the later one.
        ledger.take("agree beside shrink", status,
                    {TUTTI_ERR_MISMATCH, "rank 1 called agree", rank, tutti_last_error_rank()});
    });
}

void leave_out_different_ranks(Ledger& ledger) {
    std::latch over(2);
    run_job(ledger, "different leavers", {.ranks = 3}, [&](tutti_comm* comm, int rank) {
        if (rank == 2) return over.wait();
        const std::vector<int> leavers(rank == 0 ? 1 : 0, 2);
        const tutti_status status = shrink_without(comm, leavers);
        // Either rank may have been the later one.
        ledger.take("different leavers", status,
                    {TUTTI_ERR_MISMATCH, "leaves out", rank, tutti_last_error_rank()});
        over.count_down();
    });
}

// Rank 1 does not call before rank 0's deadline has passed.
void wait_for_a_rank_that_does_not_call(Ledger& ledger) {
    for (const bool agrees : {true, false}) {
        std::latch over(1);
        const Job job{2, {{"timeout_ms", "3000"}}};
        run_job(ledger, "a rank that does not call", job, [&](tutti_comm* comm, int rank) {
            if (rank == 1) return over.wait();
            ledger.take(
                "a rank that does not call", agrees ? agree(comm) : shrink_without(comm, {}),
                {TUTTI_ERR_TIMEOUT, agrees ? "tutti_comm_agree" : "tutti_comm_shrink", 0, 1});
            over.count_down();
        });
    }
}

// One of the two threads is refused, and the other one waits for rank 1 until then.
void call_on_two_threads(Ledger& ledger) {
    for (const bool agrees : {true, false}) {
        std::latch refused(1);
        const auto call = [&](tutti_comm* comm) {
            return agrees ? agree(comm) : shrink_without(comm, {});
        };
        const std::string name = agrees ? "tutti_comm_agree" : "tutti_comm_shrink";
        run_job(ledger, "two threads", {}, [&](tutti_comm* comm, int rank) {
            if (rank == 1) {
                refused.wait();
                if (call(comm) != TUTTI_OK) ledger.broken("two threads", tutti_last_error());
                return;
            }
            const auto call_once = [&] {
                const tutti_status status = call(comm);
                if (status == TUTTI_OK) return;
                ledger.take("a second thread", status, {.names = name, .reporter = 0});
                refused.count_down();
            };
            std::thread other(call_once);
            call_once();
            other.join();
        });
    }
}

void abort_while_agreeing(Ledger& ledger) {
    std::latch over(2);
    run_job(ledger, "an abort", {.ranks = 3}, [&](tutti_comm* comm, int rank) {
        // Rank 2 does not call, so the other calls wait.
        if (rank == 2) {
            over.wait();
            return;
        }
        // An abort before the call does not end it, so rank 0 repeats it.
        std::thread aborting;
        if (rank == 0)
            aborting = std::thread([&] {
                while (!over.try_wait()) {
                    tutti_comm_abort(comm);
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
            });
        ledger.take("agree during an abort", agree(comm),
                    {TUTTI_ERR_ABORTED, "tutti_comm_abort", rank, 0});
        over.count_down();
        if (aborting.joinable()) aborting.join();
    });
}

}  // namespace

void provoke_regrouping(Ledger& ledger) {
    constexpr void (*all[])(Ledger&) = {
        leave_out_wrong_ranks,     call_differently,
        leave_out_different_ranks, wait_for_a_rank_that_does_not_call,
        call_on_two_threads,       abort_while_agreeing};
    at_once(all, [&](void (*provoke)(Ledger&)) { provoke(ledger); });
}

}  // namespace errors_test::regrouping
