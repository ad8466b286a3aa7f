// The library as a program sees it beyond results: requests, streams, callbacks, plans, order.
// usage: tutti-run -n N behaviour CASE
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "process/rank.h"
#include "support/allocations.h"
#include "tutti/inspect.h"

using namespace rank_test;

namespace {

int sum_of_ranks() {
    return ranks * (ranks + 1) / 2;
}

void requests(tutti_comm* comm) {
    std::vector<float> a(1000, static_cast<float>(rank_of + 1)), b(300'000, 2.0f);
    tutti_request *first = nullptr, *second = nullptr, *third = nullptr;
    need(tutti_iallreduce(comm, a.data(), a.data(), a.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                          &first));
    need(tutti_iallreduce(comm, b.data(), b.data(), b.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                          &second));
    need(tutti_ibarrier(comm, nullptr, &third));
    while (tutti_test(&third) == TUTTI_IN_PROGRESS) {
    }
    require(third == nullptr, "test frees a finished request");
    need(tutti_wait(&second, -1));
    need(tutti_wait(&first, -1));
    require(a[999] == static_cast<float>(sum_of_ranks()), "first result");
    require(b[299'999] == static_cast<float>(2 * ranks), "second result");
    need(tutti_wait(&first, -1), "waiting for NULL");
}

void callbacks(tutti_comm* comm) {
    struct Seen {
        std::atomic<int> calls{0};
        std::atomic<int> status{-1};
    } seen;
    std::vector<double> x(50'000, 1.0);
    tutti_request* request = nullptr;
    need(tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_FLOAT64, TUTTI_SUM, nullptr,
                          &request));
    const auto fn = [](tutti_status status, void* user) {
        auto* s = static_cast<Seen*>(user);
        s->status = status;
        s->calls.fetch_add(1);
    };
    need(tutti_request_on_complete(request, fn, &seen));
    int fd = -1;
    need(tutti_request_fd(request, &fd));
    // No call of ours drives it: the service thread completes it, and the descriptor says so.
    pollfd p{fd, POLLIN, 0};
    require(poll(&p, 1, 30'000) == 1, "the descriptor becomes readable");
    need(tutti_wait(&request, -1));
    require(seen.calls == 1 && seen.status == TUTTI_OK, "one callback, with OK");
    require(x[0] == ranks, "result");
}

// Rank 0 comes late to stream 0's operation; stream 1's must not wait for it.
void streams(tutti_comm* comm) {
    tutti_call_opts on0 = TUTTI_CALL_OPTS_INIT, on1 = TUTTI_CALL_OPTS_INIT;
    on0.stream = 0;
    on1.stream = 1;
    std::vector<float> a(400'000, 1.0f), b(400'000, 1.0f);
    std::vector<float> more(400'000, 1.0f);
    need(tutti_allreduce(comm, a.data(), a.data(), a.size(), TUTTI_FLOAT32, TUTTI_MAX));
    tutti_request *slow = nullptr, *fast = nullptr;
    // The same calls in the same order everywhere, both under way at once.
    need(tutti_iallreduce(comm, a.data(), a.data(), a.size(), TUTTI_FLOAT32, TUTTI_SUM, &on0,
                          &slow));
    need(tutti_iallreduce(comm, b.data(), b.data(), b.size(), TUTTI_FLOAT32, TUTTI_SUM, &on1,
                          &fast));
    need(tutti_wait(&fast, -1));
    need(tutti_wait(&slow, -1));
    require(a[1] == static_cast<float>(ranks) && b[1] == a[1], "results of both streams");
    on0.stream = 99;
    require(tutti_iallreduce(comm, a.data(), a.data(), 1, TUTTI_FLOAT32, TUTTI_SUM, &on0, &slow) ==
                TUTTI_ERR_INVALID,
            "a stream out of range is refused");
}

void plans(tutti_comm* comm) {
    std::vector<float> x(20'000);
    tutti_plan* plan = nullptr;
    need(tutti_plan_allreduce(comm, x.size(), TUTTI_FLOAT32, TUTTI_SUM, nullptr, &plan));
    tutti_plan* barrier = nullptr;
    need(tutti_plan_barrier(comm, nullptr, &barrier));
    for (int round = 0; round < 20; ++round) {
        x.assign(x.size(), static_cast<float>(rank_of + 1));
        need(tutti_plan_run(plan, x.data(), x.data()));
        require(x[7] == static_cast<float>(sum_of_ranks()), "plan result");
        tutti_request* request = nullptr;
        need(tutti_plan_start(plan, x.data(), x.data(), &request));
        need(tutti_wait(&request, -1));
        need(tutti_plan_run(barrier, nullptr, nullptr));
    }
    tutti_plan_destroy(plan);
    tutti_plan_destroy(barrier);
}

// A bound plan, and repeated calls, run without allocating once they are warm.
void allocation(tutti_comm* comm) {
    for (std::size_t count : {2ul, 5'000ul, 1'000'000ul}) {
        std::vector<float> x(count, 1.0f);
        tutti_plan* plan = nullptr;
        need(tutti_plan_allreduce(comm, count, TUTTI_FLOAT32, TUTTI_MAX, nullptr, &plan));
        // A rank that waits for 100 ms on a busy machine asks the others why, which allocates: a
        // round that took half as long does not count. Buffers grow to what they need when a
        // message first arrives early: one of several attempts must be free of that.
        constexpr auto undisturbed = std::chrono::milliseconds(50);
        long fewest = -1;
        auto last = std::chrono::steady_clock::now();
        for (int attempt = 0; attempt < 10; ++attempt) {
            long made = 0;
            for (int round = 0; round < 30; ++round) {
                allocations = 0;
                counting = true;
                need(tutti_plan_run(plan, x.data(), x.data()));
                need(tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_MAX));
                need(tutti_barrier(comm));
                counting = false;
                const auto now = std::chrono::steady_clock::now();
                if (now - std::exchange(last, now) < undisturbed) made += allocations;
            }
            if (fewest < 0 || made < fewest) fewest = made;
        }
        require(fewest == 0, std::to_string(fewest) + " allocations while running plans of " +
                                 std::to_string(count) + " elements");
        tutti_plan_destroy(plan);
    }
}

// Progress by the program alone: no thread of ours exists.
void manual(tutti_comm* comm) {
    int fd = -1;
    need(tutti_progress_fd(comm, &fd));
    std::vector<int32_t> x(100'000, rank_of);
    tutti_request* request = nullptr;
    need(tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_INT32, TUTTI_MAX, nullptr,
                          &request));
    while (tutti_test(&request) == TUTTI_IN_PROGRESS) {
        need(tutti_progress(comm));
        std::this_thread::yield();
    }
    require(x[0] == ranks - 1, "result");
    need(tutti_barrier(comm), "blocking calls work too");
    // A program that sleeps in its own loop, while others come later.
    for (const std::size_t count : {1ul, 100ul, 100'000ul}) {
        if (rank_of != 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        std::fill(x.begin(), x.end(), rank_of + 1);
        need(tutti_iallreduce(comm, x.data(), x.data(), count, TUTTI_INT32, TUTTI_MAX, nullptr,
                              &request));
        while (tutti_test(&request) == TUTTI_IN_PROGRESS) {
            pollfd p{fd, POLLIN, 0};
            require(poll(&p, 1, 20'000) == 1, "the descriptor tells of what can move");
            need(tutti_progress(comm));
        }
        require(x[0] == ranks, "result of who slept");
    }
}

// A forked child can neither see nor disturb the operations that its parent has under way.
void let_lie(tutti_comm* comm, tutti_plan* plan, tutti_request* requests[2]) {
    const auto refused = [](tutti_status status) {
        expect_error(status, TUTTI_ERR_UNSUPPORTED, "forked");
    };
    int fd = -1;
    refused(tutti_request_fd(requests[0], &fd));
    refused(tutti_request_on_complete(
        requests[0], [](tutti_status, void*) {}, nullptr));
    refused(tutti_wait(&requests[0], -1));
    refused(tutti_test(&requests[1]));
    require(!requests[0] && !requests[1], "a child's handles are gone");
    refused(tutti_progress(comm));
    refused(tutti_comm_sync(comm, -1));
    refused(tutti_group_end(comm));
    refused(tutti_comm_abort(comm));
    refused(tutti_comm_revoke(comm));
    tutti_comm* other = nullptr;
    const int rank = 0;
    refused(tutti_comm_shrink(comm, &other));
    refused(tutti_comm_shrink_without(comm, &rank, 1, &other));
    refused(tutti_comm_grow(comm, 1, &other));
    refused(tutti_comm_leave(comm));
    uint64_t bits = 0;
    refused(tutti_comm_agree(comm, &bits));
    int newcomers = 0;
    refused(tutti_comm_waiting(comm, &newcomers));
    require(other == nullptr, "a child gets no communicator");
    void* memory = nullptr;
    refused(tutti_mem_alloc(comm, 100, &memory));
    refused(tutti_mem_alloc_device(comm, 100, &memory));
    double us = 0;
    refused(tutti_estimate_begin(comm));
    refused(tutti_estimate_end(comm, &us));
    tutti_memory_stats stats = TUTTI_MEMORY_STATS_INIT;
    refused(tutti_comm_memory(comm, &stats));
    refused(tutti_comm_use_device(comm, 0));
    refused(tutti_comm_set_device_stream(comm, nullptr));
    tutti_comm* part = nullptr;
    refused(tutti_comm_split(comm, 0, 0, &part));
    refused(tutti_comm_dup(comm, &part));
    tutti_plan_destroy(plan);
}

void forked(tutti_comm* comm) {
    need(tutti_barrier(comm));
    std::vector<int> x(100'000, 1), y(x), z(x);
    tutti_plan* plan = nullptr;
    need(tutti_plan_allreduce(comm, x.size(), TUTTI_INT32, TUTTI_SUM, nullptr, &plan));
    // The last rank starts them only when it is back from its child.
    tutti_request *requests[2] = {}, *run = nullptr;
    const auto start = [&] {
        need(tutti_iallreduce(comm, x.data(), x.data(), x.size(), TUTTI_INT32, TUTTI_SUM, nullptr,
                              &requests[0]));
        need(tutti_iallreduce(comm, y.data(), y.data(), y.size(), TUTTI_INT32, TUTTI_SUM, nullptr,
                              &requests[1]));
        need(tutti_plan_start(plan, z.data(), z.data(), &run));
    };
    const bool waits = rank_of < ranks - 1;
    if (waits) start();
    const pid_t child = fork();
    if (child == 0) {
        if (waits) let_lie(comm, plan, requests);
        const tutti_status status = tutti_barrier(comm);
        const bool right =
            status == TUTTI_ERR_UNSUPPORTED && std::strstr(tutti_last_error(), "forked") != nullptr;
        // Without a word to the parent's peers; then the children have a job of their own.
        need(tutti_comm_destroy(comm), "a child lets go of its parent's");
        tutti_comm* own = nullptr;
        need(tutti_comm_create(nullptr, &own), "create in a child");
        int sum = 1;
        need(tutti_allreduce(own, &sum, &sum, 1, TUTTI_INT32, TUTTI_SUM), "allreduce of children");
        need(tutti_comm_destroy(own), "destroy in a child");
        std::_Exit(right && sum == ranks ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child gets an error that says why");
    if (!waits) start();
    for (tutti_request** request : {&requests[0], &requests[1], &run})
        need(tutti_wait(request, -1));
    for (const auto* sums : {&x, &y, &z})
        require(*sums == std::vector<int>(sums->size(), ranks), "what was under way at the fork");
    tutti_plan_destroy(plan);
    need(tutti_barrier(comm), "the parent goes on");
}

void recorder(tutti_comm* comm) {
    float x = 1;
    for (int i = 0; i < 3; ++i) need(tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_MAX));
    int ends[2];
    require(pipe(ends) == 0, "pipe");
    need(tutti_comm_dump(comm, ends[1]));
    close(ends[1]);
    std::string text(100'000, '\0');
    const ssize_t got = read(ends[0], text.data(), text.size());
    text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    require(text.find("\"call\":\"allreduce #3 (count 1, float32, max)\"") != std::string::npos,
            "third call");
    const char* arguments = R"("collective":"allreduce","count":1,"dtype":"float32","op":"max")";
    require(text.find(arguments) != std::string::npos, "its arguments");
    require(text.find("\"state\":\"done\"") != std::string::npos, "state");
}

// A second communicator in the same job, after the first and beside it.
void again(tutti_comm*) {
    for (int round = 0; round < 3; ++round) {
        tutti_comm* other = nullptr;
        need(tutti_comm_create(nullptr, &other), "create again");
        int x = 1;
        need(tutti_allreduce(other, &x, &x, 1, TUTTI_INT32, TUTTI_SUM));
        require(x == ranks, "result");
        need(tutti_comm_destroy(other));
    }
}

// Rank 0's process has ended, and with it a store that it served, when the others first meet.
void survivors(tutti_comm* comm) {
    if (rank_of == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const int next = rank_of + 1 < ranks ? rank_of + 1 : 1;
    const int previous = rank_of > 1 ? rank_of - 1 : ranks - 1;
    int got = -1;
    tutti_request* requests[2] = {};
    need(tutti_irecv(comm, &got, 1, TUTTI_INT32, previous, 0, nullptr, nullptr, &requests[0]));
    need(tutti_isend(comm, &rank_of, 1, TUTTI_INT32, next, 0, nullptr, &requests[1]),
         "to the next");
    for (tutti_request*& request : requests) need(tutti_wait(&request, -1), "from the previous");
    require(got == previous, "the previous rank's number");
}

}  // namespace

int main(int argc, char** argv) {
    return run_case(argc, argv,
                    {{"requests", requests},
                     {"callbacks", callbacks},
                     {"streams", streams},
                     {"plans", plans},
                     {"allocation", allocation},
                     {"manual", manual},
                     {"fork", forked},
                     {"recorder", recorder},
                     {"again", again},
                     {"survivors", survivors}});
}
