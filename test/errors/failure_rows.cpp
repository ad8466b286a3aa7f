// Ranks that are late, abort or leave; plans that are busy, and calls in a completion callback.
#include <array>
#include <latch>
#include <string>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::failures {
namespace {

std::string on(int rank, const char* what) {
    return std::string(what) + ", on rank " + std::to_string(rank);
}

tutti_status sum(tutti_comm* comm) {
    std::array<float, 8> x{};
    return tutti_allreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM);
}

tutti_status split(tutti_comm* comm) {
    tutti_comm* part = nullptr;
    return tutti_comm_split(comm, 0, 0, &part);
}

// A call that all other ranks have made already may still succeed, before the news of a failure is
// there. The next one waits for the others, and for the news.
tutti_status sum_until_refused(tutti_comm* comm) {
    const tutti_status status = sum(comm);
    return status == TUTTI_OK ? sum(comm) : status;
}

// Rank 1 does not call before rank 0's deadline has passed.
void pass_a_deadline(Ledger& ledger) {
    std::latch over(1);
    run_job(ledger, "deadline", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) {
            over.wait();
            ledger.take(on(rank, "a call after a deadline"), sum_until_refused(comm),
                        {TUTTI_ERR_TIMEOUT, "allreduce", 1, 1});
            return;
        }
        std::array<float, 8> x{}, y{};
        tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
        opts.timeout_ms = 100;
        tutti_request *patient = nullptr, *hasty = nullptr;
        tutti_iallreduce(comm, x.data(), x.data(), 8, TUTTI_FLOAT32, TUTTI_SUM, nullptr, &patient);
        ledger.take("a wait that is too short", tutti_wait(&patient, 1),
                    {TUTTI_ERR_TIMEOUT, "tutti_wait", 0});
        tutti_iallreduce(comm, y.data(), y.data(), 8, TUTTI_FLOAT32, TUTTI_SUM, &opts, &hasty);
        ledger.take(on(rank, "a deadline"), tutti_wait(&hasty, -1),
                    {TUTTI_ERR_TIMEOUT, "allreduce", 0, 1});
        ledger.take(on(rank, "another call's deadline"), tutti_wait(&patient, -1),
                    {TUTTI_ERR_TIMEOUT, "allreduce", 0, 1});
        ledger.take(on(rank, "a split after a deadline"), split(comm),
                    {TUTTI_ERR_TIMEOUT, "allreduce", 0, 1});
        over.count_down();
    });
}

// The same with a blocking call, whose deadline is the communicator's: that of joining, too, which
// must not pass on a busy machine.
void pass_the_communicators_deadline(Ledger& ledger) {
    std::latch over(1);
    const Job job{2, {{"timeout_ms", "6000"}}};
    run_job(ledger, "deadline", job, [&](tutti_comm* comm, int rank) {
        if (rank == 1) return over.wait();
        ledger.take("the communicator's deadline", tutti_barrier(comm),
                    {TUTTI_ERR_TIMEOUT, "barrier", 0, 1});
        over.count_down();
    });
}

void abort_while_waiting(Ledger& ledger) {
    std::latch under_way(1);
    run_job(ledger, "abort", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) {
            under_way.wait();
            if (tutti_comm_abort(comm) != TUTTI_OK) ledger.broken("abort", tutti_last_error());
            ledger.take(on(rank, "a call after an abort"), sum(comm),
                        {TUTTI_ERR_ABORTED, "tutti_comm_abort", 1, 1});
            return;
        }
        std::array<float, 8> x{};
        tutti_request* request = nullptr;
        tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                         &request);
        under_way.count_down();
        ledger.take(on(rank, "an abort"), tutti_wait(&request, -1),
                    {TUTTI_ERR_ABORTED, "tutti_comm_abort", 0, 1});
        ledger.take(on(rank, "a barrier after an abort"), tutti_barrier(comm),
                    {TUTTI_ERR_ABORTED, "tutti_comm_abort", 0, 1});
        ledger.take(on(rank, "a message after an abort"),
                    tutti_send(comm, x.data(), 1, TUTTI_FLOAT32, 1, 0),
                    {TUTTI_ERR_ABORTED, "tutti_comm_abort", 0, 1});
    });
}

void revoke_while_waiting(Ledger& ledger) {
    std::latch under_way(1);
    run_job(ledger, "revoke", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) {
            under_way.wait();
            if (tutti_comm_revoke(comm) != TUTTI_OK) ledger.broken("revoke", tutti_last_error());
            ledger.take(on(rank, "a call after a revoke"), sum(comm),
                        {TUTTI_ERR_REVOKED, "rank 1 revoked the communicator", 1, 1});
            return;
        }
        std::array<float, 8> x{};
        tutti_request* request = nullptr;
        tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                         &request);
        under_way.count_down();
        const Want want{TUTTI_ERR_REVOKED, "rank 1 revoked the communicator", 0, 1};
        ledger.take(on(rank, "a revoke"), tutti_wait(&request, -1), want);
        ledger.take(on(rank, "a barrier after a revoke"), tutti_barrier(comm), want);
        ledger.take(on(rank, "a split after a revoke"), split(comm), want);
        ledger.take(on(rank, "a message after a revoke"),
                    tutti_send(comm, x.data(), 1, TUTTI_FLOAT32, 1, 0), want);
    });
}

void call_after_leaving(Ledger& ledger) {
    std::latch left(1);
    run_job(ledger, "leave", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 0) {
            left.wait();
            ledger.take("a call after another rank left", sum(comm),
                        {TUTTI_ERR_PEER_LOST, "rank 1 has left", 0, 1});
            return;
        }
        if (tutti_comm_leave(comm) != TUTTI_OK) ledger.broken("leave", tutti_last_error());
        left.count_down();
        std::array<float, 8> x{};
        uint64_t bits = 0;
        void* memory = nullptr;
        tutti_plan* plan = nullptr;
        const Want want{TUTTI_ERR_INVALID, "this rank has left the communicator", 1, -1};
        const auto take = [&](const char* what, tutti_status status) {
            ledger.take(std::string(what) + " after leaving", status, want);
        };
        take("allreduce", sum(comm));
        take("plan", tutti_plan_allreduce(comm, 8, TUTTI_FLOAT32, TUTTI_SUM, nullptr, &plan));
        take("send", tutti_send(comm, x.data(), 1, TUTTI_FLOAT32, 0, 0));
        take("split", split(comm));
        take("agree", tutti_comm_agree(comm, &bits));
        take("revoke", tutti_comm_revoke(comm));
        take("leave", tutti_comm_leave(comm));
        take("mem_alloc", tutti_mem_alloc(comm, 8, &memory));
        take("mem_register", tutti_mem_register(comm, x.data(), sizeof x, -1));
        if (tutti_comm_abort(comm) != TUTTI_OK) ledger.broken("abort", tutti_last_error());
    });
}

// The error has both.
void revoke_after_a_deadline(Ledger& ledger) {
    std::latch over(1), revoked(1);
    run_job(ledger, "revoke", {}, [&](tutti_comm* comm, int rank) {
        const Want want{TUTTI_ERR_REVOKED, "revoked the communicator (after: ", rank, 0};
        if (rank == 0) {
            std::array<float, 8> x{};
            tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
            opts.timeout_ms = 100;
            tutti_request* request = nullptr;
            tutti_iallreduce(comm, x.data(), x.data(), 8, TUTTI_FLOAT32, TUTTI_SUM, &opts,
                             &request);
            ledger.take(on(rank, "a deadline before a revoke"), tutti_wait(&request, -1),
                        {TUTTI_ERR_TIMEOUT, "allreduce", 0, 1});
            if (tutti_comm_revoke(comm) != TUTTI_OK) ledger.broken("revoke", tutti_last_error());
            ledger.take(on(rank, "a call after a deadline and a revoke"), sum(comm), want);
            over.count_down();
            revoked.wait();
            return;
        }
        over.wait();
        tutti_status status = sum_until_refused(comm);
        while (status == TUTTI_ERR_TIMEOUT) status = sum(comm);
        ledger.take(on(rank, "a call after a deadline and a revoke"), status, want);
        revoked.count_down();
    });
}

void leave_while_called(Ledger& ledger) {
    run_job(ledger, "leaving", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) return;
        float x = 0;
        ledger.take("a call that a rank has left", sum(comm),
                    {TUTTI_ERR_PEER_LOST, "rank 1", 0, 1});
        ledger.take("a barrier that a rank has left", tutti_barrier(comm),
                    {TUTTI_ERR_PEER_LOST, "rank 1", 0, 1});
        ledger.take("a split that a rank has left", split(comm),
                    {TUTTI_ERR_PEER_LOST, "rank 1", 0, 1});
        ledger.take("a message to a rank that has left",
                    tutti_send(comm, &x, 1, TUTTI_FLOAT32, 1, 0),
                    {TUTTI_ERR_PEER_LOST, "rank 1", 0, 1});
        ledger.take("a message from a rank that has left",
                    tutti_recv(comm, &x, 1, TUTTI_FLOAT32, 1, 0, nullptr),
                    {TUTTI_ERR_PEER_LOST, "rank 1", 0, 1});
    });
}

void destroy_with_requests(Ledger& ledger) {
    std::latch over(1);
    const Job job{.left_open = true};
    run_job(ledger, "destroying", job, [&](tutti_comm* comm, int rank) {
        if (rank == 1) {
            over.wait();
            tutti_comm_destroy(comm);
            return;
        }
        std::array<float, 8> x{};
        tutti_request *collective = nullptr, *message = nullptr;
        tutti_iallreduce(comm, x.data(), x.data(), 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                         &collective);
        tutti_irecv(comm, x.data() + 4, 1, TUTTI_FLOAT32, 1, 3, nullptr, nullptr, &message);
        tutti_comm_destroy(comm);
        ledger.take("a collective whose communicator was destroyed", tutti_wait(&collective, -1),
                    {TUTTI_ERR_ABORTED, "destroyed", 0, 0});
        ledger.take("a message whose communicator was destroyed", tutti_wait(&message, -1),
                    {TUTTI_ERR_ABORTED, "destroyed", 0, 0});
        over.count_down();
    });
}

void start_a_busy_plan(Ledger& ledger) {
    std::latch refused(1);
    run_job(ledger, "a busy plan", {}, [&](tutti_comm* comm, int rank) {
        std::array<float, 8> x{};
        tutti_plan* plan = nullptr;
        tutti_request *request = nullptr, *second = nullptr;
        if (tutti_plan_allreduce(comm, x.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr, &plan) !=
            TUTTI_OK)
            return ledger.broken("a busy plan", tutti_last_error());
        if (rank == 1) refused.wait();
        tutti_plan_start(plan, x.data(), x.data(), &request);
        if (rank == 0) {
            ledger.take("a plan that is started twice",
                        tutti_plan_start(plan, x.data(), x.data(), &second),
                        {.names = "plan", .reporter = 0});
            ledger.take("a plan that runs already", tutti_plan_run(plan, x.data(), x.data()),
                        {.names = "plan", .reporter = 0});
            ledger.take("a plan without its input", tutti_plan_run(plan, nullptr, x.data()),
                        {.names = "tutti_plan_run", .reporter = 0});
            refused.count_down();
        }
        tutti_wait(&request, -1);
        tutti_plan_destroy(plan);
    });
}

/// The communicator, the request and the plan on which a callback calls.
struct InCallback {
    Ledger& ledger;
    tutti_comm* comm;
    tutti_request* other = nullptr;
    tutti_plan* plan = nullptr;
};

void call_in_callback(tutti_status, void* user) {
    InCallback& c = *static_cast<InCallback*>(user);
    std::array<float, 8> x{};
    tutti_request* request = nullptr;
    tutti_comm* made = nullptr;
    uint64_t bits = 0;
    const auto take = [&](const char* what, tutti_status status, int reporter = 0) {
        c.ledger.take(std::string(what) + " in a completion callback", status,
                      {.names = "completion callback", .reporter = reporter});
    };
    take("allreduce", sum(c.comm));
    take("iallreduce", tutti_iallreduce(c.comm, x.data(), x.data(), 8, TUTTI_FLOAT32, TUTTI_SUM,
                                        nullptr, &request));
    take("plan_run", tutti_plan_run(c.plan, x.data(), x.data()));
    take("send", tutti_send(c.comm, x.data(), 1, TUTTI_FLOAT32, 1, 0));
    take("wait", tutti_wait(&c.other, -1));
    take("split", split(c.comm));
    take("agree", tutti_comm_agree(c.comm, &bits));
    take("shrink", tutti_comm_shrink(c.comm, &made));
    take("grow", tutti_comm_grow(c.comm, 1, &made));
    int waiting = 0;
    take("waiting", tutti_comm_waiting(c.comm, &waiting));
    take("leave", tutti_comm_leave(c.comm));
    take("group_end", tutti_group_end(c.comm));
    take("destroy", tutti_comm_destroy(c.comm), -1);
    take("create", tutti_comm_create(nullptr, &made), -1);
}

void call_in_callbacks(Ledger& ledger) {
    std::latch set(1);
    run_job(ledger, "callbacks", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) set.wait();
        InCallback calls{ledger, comm};
        std::array<float, 8> x{};
        tutti_plan_allreduce(comm, x.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr, &calls.plan);
        tutti_request* request = nullptr;
        tutti_ibarrier(comm, nullptr, &request);
        tutti_ibarrier(comm, nullptr, &calls.other);
        if (rank == 0) {
            if (tutti_request_on_complete(request, call_in_callback, &calls) != TUTTI_OK)
                ledger.broken("callbacks", tutti_last_error());
            ledger.take("a second callback",
                        tutti_request_on_complete(request, call_in_callback, &calls),
                        {.names = "tutti_request_on_complete", .reporter = 0});
            ledger.take("a callback that is NULL",
                        tutti_request_on_complete(request, nullptr, &calls),
                        {.names = "tutti_request_on_complete"});
            ledger.take("a descriptor that is NULL", tutti_request_fd(request, nullptr),
                        {.names = "tutti_request_fd"});
            set.count_down();
        }
        tutti_wait(&request, -1);
        tutti_wait(&calls.other, -1);
        tutti_plan_destroy(calls.plan);
    });
}

}  // namespace

void provoke_failures(Ledger& ledger) {
    constexpr void (*all[])(Ledger&) = {pass_a_deadline,         pass_the_communicators_deadline,
                                        abort_while_waiting,     revoke_while_waiting,
                                        revoke_after_a_deadline, leave_while_called,
                                        call_after_leaving,      destroy_with_requests,
                                        start_a_busy_plan,       call_in_callbacks};
    at_once(all, [&](void (*provoke)(Ledger&)) { provoke(ledger); });
}

}  // namespace errors_test::failures
