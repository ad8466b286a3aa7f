// Messages between two ranks.
#include <array>
#include <latch>

#include "errors/areas.h"
#include "errors/jobs.h"

namespace errors_test::messages {
namespace {

constexpr std::size_t large = 100'000;  // a message that waits for its receive
constexpr std::size_t overflowing = ~std::size_t{0};

struct Row {
    const char* what;
    const char* names;
    tutti_status (*call)(tutti_comm* comm, float* x);
};

constexpr Row rows[] = {
    {"a send to no rank", "send",
     [](tutti_comm* c, float* x) { return tutti_send(c, x, 1, TUTTI_FLOAT32, 2, 0); }},
    {"a send to a negative rank", "send",
     [](tutti_comm* c, float* x) { return tutti_send(c, x, 1, TUTTI_FLOAT32, -1, 0); }},
    {"a receive from no rank", "recv",
     [](tutti_comm* c, float* x) { return tutti_recv(c, x, 1, TUTTI_FLOAT32, 7, 0, nullptr); }},
    {"a receive from a negative rank", "recv",
     [](tutti_comm* c, float* x) { return tutti_recv(c, x, 1, TUTTI_FLOAT32, -9, 0, nullptr); }},
    {"a negative tag", "send",
     [](tutti_comm* c, float* x) { return tutti_send(c, x, 1, TUTTI_FLOAT32, 1, -4); }},
    {"a negative tag of a receive", "recv",
     [](tutti_comm* c, float* x) { return tutti_recv(c, x, 1, TUTTI_FLOAT32, 1, -4, nullptr); }},
    {"a send from NULL", "send",
     [](tutti_comm* c, float*) { return tutti_send(c, nullptr, 1, TUTTI_FLOAT32, 1, 0); }},
    {"a receive to NULL", "recv",
     [](tutti_comm* c, float*) { return tutti_recv(c, nullptr, 1, TUTTI_FLOAT32, 1, 0, nullptr); }},
    {"a send of no dtype", "tutti_send",
     [](tutti_comm* c, float* x) { return tutti_send(c, x, 1, 99, 1, 0); }},
    {"a receive of no dtype", "tutti_recv",
     [](tutti_comm* c, float* x) { return tutti_recv(c, x, 1, -3, 1, 0, nullptr); }},
    {"a send without end", "tutti_send",
     [](tutti_comm* c, float* x) { return tutti_send(c, x, overflowing, TUTTI_FLOAT32, 1, 0); }},
    {"a receive without end", "tutti_recv",
     [](tutti_comm* c, float* x) {
         return tutti_recv(c, x, overflowing, TUTTI_FLOAT32, 1, 0, nullptr);
     }},
    {"a sendrecv to no rank", "send",
     [](tutti_comm* c, float* x) {
         return tutti_sendrecv(c, x, 1, 5, 0, x + 1, 1, 1, 0, TUTTI_FLOAT32, nullptr);
     }},
    {"a sendrecv from no rank", "recv",
     [](tutti_comm* c, float* x) {
         return tutti_sendrecv(c, x, 1, 1, 0, x + 1, 1, 5, 0, TUTTI_FLOAT32, nullptr);
     }},
    {"a sendrecv of no dtype", "tutti_sendrecv",
     [](tutti_comm* c, float* x) {
         return tutti_sendrecv(c, x, 1, 1, 0, x + 1, 1, 1, 0, 44, nullptr);
     }},
    {"an isend to no rank", "send",
     [](tutti_comm* c, float* x) {
         tutti_request* request = nullptr;
         return tutti_isend(c, x, 1, TUTTI_FLOAT32, 3, 0, nullptr, &request);
     }},
    {"an irecv of no dtype", "tutti_irecv",
     [](tutti_comm* c, float* x) {
         tutti_request* request = nullptr;
         return tutti_irecv(c, x, 1, 44, 1, 0, nullptr, nullptr, &request);
     }},
};

// The two buffers of messages that do not fit each other.
void misfit(Ledger& ledger) {
    run_job(ledger, "misfits", {}, [&](tutti_comm* comm, int rank) {
        std::vector<float> x(large);
        if (rank == 0) {
            // Small messages are copied: their sender is done before their receiver looks.
            tutti_send(comm, x.data(), 8, TUTTI_FLOAT32, 1, 1);
            tutti_send(comm, x.data(), 8, TUTTI_FLOAT32, 1, 2);
            ledger.take("a large send to a small receive",
                        tutti_send(comm, x.data(), large, TUTTI_FLOAT32, 1, 3),
                        {.names = "tag 3", .reporter = 0, .culprit = 1});
            return;
        }
        ledger.take("a receive that is too small",
                    tutti_recv(comm, x.data(), 4, TUTTI_FLOAT32, 0, 1, nullptr),
                    {.names = "tag 1", .reporter = 1, .culprit = 0});
        ledger.take("a receive of another dtype",
                    tutti_recv(comm, x.data(), 8, TUTTI_INT32, 0, 2, nullptr),
                    {TUTTI_ERR_MISMATCH, "tag 2", 1, 0});
        ledger.take("a small receive of a large send",
                    tutti_recv(comm, x.data(), 8, TUTTI_FLOAT32, 0, 3, nullptr),
                    {.names = "tag 3", .reporter = 1, .culprit = 0});
    });
}

// No message comes before the receive's deadline.
void wait_for_no_message(Ledger& ledger, int source, const Want& want) {
    std::latch over(1);
    run_job(ledger, "messages that do not come", {}, [&](tutti_comm* comm, int rank) {
        if (rank == 1) return over.wait();
        float x = 0;
        tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
        opts.timeout_ms = 100;
        tutti_request* request = nullptr;
        tutti_irecv(comm, &x, 1, TUTTI_FLOAT32, source, 5, nullptr, &opts, &request);
        ledger.take("a receive's deadline, from " + std::to_string(source),
                    tutti_wait(&request, -1), want);
        over.count_down();
    });
}

}  // namespace

void provoke_messages(Ledger& ledger) {
    run_job(ledger, "messages", {}, [&](tutti_comm* comm, int rank) {
        std::array<float, 8> x{};
        if (rank == 0)
            for (const Row& row : rows)
                ledger.take(row.what, row.call(comm, x.data()),
                            {.names = row.names, .reporter = 0});
        tutti_barrier(comm);
    });
    misfit(ledger);
    wait_for_no_message(ledger, 1, {TUTTI_ERR_TIMEOUT, "receive", 0, 1});
    wait_for_no_message(ledger, TUTTI_ANY_SOURCE, {TUTTI_ERR_TIMEOUT, "receive", 0});
}

}  // namespace errors_test::messages
