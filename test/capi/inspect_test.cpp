// Estimates of the time of calls that are not made, and counts of memory.
#include "tutti/inspect.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.h"
#include "support/folder.h"
#include "tutti/tutti.h"

namespace inspect_test {
namespace {

constexpr int ranks = 2;

using Comm = std::unique_ptr<tutti_comm, decltype(&tutti_comm_destroy)>;

Comm join(const tutti::test::Folder& folder, int rank) {
    tutti_config* config = nullptr;
    tutti_config_create(&config);
    for (const auto& [key, value] :
         std::vector<std::pair<std::string, std::string>>{{"rank", std::to_string(rank)},
                                                          {"size", std::to_string(ranks)},
                                                          {"store", "file://" + folder.path()},
                                                          {"transport", "inproc"},
                                                          {"timeout_ms", "60000"}})
        tutti_config_set(config, key.c_str(), value.c_str());
    tutti_comm* comm = nullptr;
    tutti_comm_create(config, &comm);
    tutti_config_destroy(config);
    return {comm, &tutti_comm_destroy};
}

// Two ranks. The test's own thread is rank 0; rank 1 only makes the calls that it is given.
class Pair {
public:
    explicit Pair(const std::function<tutti_status(tutti_comm*)>& calls_of_rank_1)
        : other_([this, calls_of_rank_1] {
              const Comm comm = join(folder_, 1);
              status = comm ? calls_of_rank_1(comm.get()) : TUTTI_ERR_SYSTEM;
          }),
          comm_(join(folder_, 0)) {
        REQUIRE(comm_.get() != nullptr);
    }
    ~Pair() { end(); }
    Pair(const Pair&) = delete;

    operator tutti_comm*() const { return comm_.get(); }
    void end() {
        if (other_.joinable()) other_.join();
    }

    std::atomic<int> status{-1};

private:
    const tutti::test::Folder folder_;
    std::thread other_;
    const Comm comm_;
};

tutti_status nothing(tutti_comm*) {
    return TUTTI_OK;
}

void expect(tutti_status got, tutti_status want, const std::string& words) {
    INFO(tutti_last_error());
    REQUIRE(got == want);
    REQUIRE(std::string(tutti_last_error()).find(words) != std::string::npos);
}

double estimate(tutti_comm* comm, const std::function<tutti_status()>& calls) {
    double us = -1;
    REQUIRE(tutti_estimate_begin(comm) == TUTTI_OK);
    const tutti_status status = calls();
    INFO(tutti_last_error());
    REQUIRE(status == TUTTI_OK);
    REQUIRE(tutti_estimate_end(comm, &us) == TUTTI_OK);
    return us;
}

// The time that tutti_comm_explain gives for the algorithm of such a call.
double explained(tutti_comm* comm, const char* collective, std::size_t count) {
    std::array<char, 8192> text{};
    REQUIRE(tutti_comm_explain(comm, collective, count, TUTTI_FLOAT32, TUTTI_SUM, text.data(),
                               text.size()) == TUTTI_OK);
    const char* algorithm = tutti_comm_algorithm(comm, collective, count, TUTTI_FLOAT32, TUTTI_SUM);
    REQUIRE(algorithm);
    const std::string words(text.data()), line = std::string("    ") + algorithm + ": ";
    INFO(words);
    const auto at = words.find(line);
    REQUIRE(at != std::string::npos);
    return std::strtod(words.c_str() + at + line.size(), nullptr);
}

struct Row {
    const char* collective;
    tutti_status (*call)(tutti_comm* comm, const float* in, float* out, std::size_t count);
};

constexpr Row rows[] = {
    {"allreduce",
     [](tutti_comm* c, const float* in, float* out, std::size_t n) {
         return tutti_allreduce(c, in, out, n, TUTTI_FLOAT32, TUTTI_SUM);
     }},
    {"broadcast", [](tutti_comm* c, const float*, float* out,
                     std::size_t n) { return tutti_broadcast(c, out, n, TUTTI_FLOAT32, 0); }},
    {"barrier", [](tutti_comm* c, const float*, float*, std::size_t) { return tutti_barrier(c); }},
    {"reduce",
     [](tutti_comm* c, const float* in, float* out, std::size_t n) {
         return tutti_reduce(c, in, out, n, TUTTI_FLOAT32, TUTTI_SUM, 0);
     }},
    {"allgather", [](tutti_comm* c, const float* in, float* out,
                     std::size_t n) { return tutti_allgather(c, in, out, n, TUTTI_FLOAT32); }},
    {"reduce_scatter",
     [](tutti_comm* c, const float* in, float* out, std::size_t n) {
         return tutti_reduce_scatter(c, in, out, n, TUTTI_FLOAT32, TUTTI_SUM);
     }},
    {"gather", [](tutti_comm* c, const float* in, float* out,
                  std::size_t n) { return tutti_gather(c, in, out, n, TUTTI_FLOAT32, 0); }},
    {"scatter", [](tutti_comm* c, const float* in, float* out,
                   std::size_t n) { return tutti_scatter(c, in, out, n, TUTTI_FLOAT32, 0); }},
    {"alltoall", [](tutti_comm* c, const float* in, float* out,
                    std::size_t n) { return tutti_alltoall(c, in, out, n, TUTTI_FLOAT32); }},
    {"scan", [](tutti_comm* c, const float* in, float* out,
                std::size_t n) { return tutti_scan(c, in, out, n, TUTTI_FLOAT32, TUTTI_SUM); }},
    {"exscan", [](tutti_comm* c, const float* in, float* out,
                  std::size_t n) { return tutti_exscan(c, in, out, n, TUTTI_FLOAT32, TUTTI_SUM); }},
};

TEST_CASE(
    "estimates: one rank estimates alone, touches no buffer and takes no place in the order") {
    constexpr std::size_t count = 100'000;
    Pair comm([](tutti_comm* other) {
        std::vector<float> x(count, 2);
        const tutti_status first = tutti_barrier(other);
        return first ? first
                     : tutti_allreduce(other, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM);
    });
    std::vector<float> x(count, 1);
    tutti_request* request = nullptr;
    std::atomic<int> called{0};
    const double us = estimate(comm, [&] {
        REQUIRE(tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM) ==
                TUTTI_OK);
        REQUIRE(tutti_iallreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM, nullptr,
                                 &request) == TUTTI_OK);
        REQUIRE(request);
        REQUIRE(tutti_request_on_complete(
                    request,
                    [](tutti_status, void* user) { ++*static_cast<std::atomic<int>*>(user); },
                    &called) == TUTTI_OK);
        REQUIRE(tutti_test(&request) == TUTTI_OK);
        return tutti_barrier(comm);
    });
    REQUIRE(us > 0);
    REQUIRE(called == 1);
    REQUIRE(!request);
    REQUIRE(x == std::vector<float>(count, 1));
    REQUIRE(tutti_barrier(comm) == TUTTI_OK);
    REQUIRE(tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
    REQUIRE(x == std::vector<float>(count, 3));
    comm.end();
    REQUIRE(comm.status == TUTTI_OK);
}

TEST_CASE("estimates: the time of a call is the one that explain gives for its algorithm") {
    const Pair comm(nothing);
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 18}) {
        std::vector<float> in(ranks * count, 1), out(ranks * count, 2);
        for (const Row& row : rows) {
            INFO(row.collective << " of " << count);
            const double us =
                estimate(comm, [&] { return row.call(comm, in.data(), out.data(), count); });
            const std::size_t told = std::string(row.collective) == "barrier" ? 0 : count;
            REQUIRE(std::abs(us - explained(comm, row.collective, told)) <= 0.0051);
        }
        REQUIRE(out == std::vector<float>(ranks * count, 2));
    }
}

TEST_CASE("estimates: times of several calls, of plans and of larger calls add up and grow") {
    const Pair comm([](tutti_comm* other) {
        tutti_plan* plan = nullptr;
        const tutti_status status =
            tutti_plan_allreduce(other, 1000, TUTTI_FLOAT32, TUTTI_SUM, nullptr, &plan);
        const tutti_status waited = tutti_barrier(other);
        tutti_plan_destroy(plan);
        return status ? status : waited;
    });
    std::vector<float> x(1 << 20);
    const auto sum = [&](std::size_t count) {
        return tutti_allreduce(comm, x.data(), x.data(), count, TUTTI_FLOAT32, TUTTI_SUM);
    };
    const double small = estimate(comm, [&] { return sum(1000); });
    const double large = estimate(comm, [&] { return sum(1 << 20); });
    REQUIRE(large > 10 * small);
    const double both = estimate(comm, [&] { return sum(1000) ? TUTTI_ERR_SYSTEM : sum(1 << 20); });
    REQUIRE(std::abs(both - small - large) < 1e-6 * both);
    REQUIRE(estimate(comm, [] { return TUTTI_OK; }) == 0);

    tutti_plan* plan = nullptr;
    REQUIRE(tutti_plan_allreduce(comm, 1000, TUTTI_FLOAT32, TUTTI_SUM, nullptr, &plan) == TUTTI_OK);
    const double planned = estimate(comm, [&] {
        tutti_request* request = nullptr;
        const tutti_status started = tutti_plan_start(plan, x.data(), x.data(), &request);
        REQUIRE(tutti_wait(&request, -1) == TUTTI_OK);
        return started ? started : tutti_plan_run(plan, x.data(), x.data());
    });
    REQUIRE(tutti_barrier(comm) == TUTTI_OK);
    tutti_plan_destroy(plan);
    REQUIRE(std::abs(planned - 2 * small) < 1e-6 * planned);
}

TEST_CASE("estimates: blocks of different lengths count with the lengths that the rank knows") {
    const Pair comm(nothing);
    std::vector<float> in(1 << 20), out(1 << 20);
    const auto exchange = [&](std::size_t count) {
        const std::array<std::size_t, 2> counts{count, count};
        return estimate(comm, [&] {
            return tutti_alltoallv(comm, in.data(), counts.data(), nullptr, out.data(),
                                   counts.data(), nullptr, TUTTI_FLOAT32);
        });
    };
    const double small = exchange(1), large = exchange(1 << 18);
    const double even = estimate(
        comm, [&] { return tutti_alltoall(comm, in.data(), out.data(), 1 << 18, TUTTI_FLOAT32); });
    REQUIRE(small > 0);
    REQUIRE(large > small);
    REQUIRE(large < 3 * even);
}

TEST_CASE("estimates: refused calls say why and add nothing") {
    const Pair comm(nothing);
    float x = 0;
    double us = -1;
    expect(tutti_estimate_end(comm, &us), TUTTI_ERR_INVALID, "has not begun an estimate");
    REQUIRE(tutti_estimate_begin(comm) == TUTTI_OK);
    expect(tutti_estimate_begin(comm), TUTTI_ERR_INVALID, "has an estimate already");
    expect(tutti_broadcast(comm, &x, 1, TUTTI_FLOAT32, 7), TUTTI_ERR_INVALID, "root 7");
    expect(tutti_send(comm, &x, 1, TUTTI_FLOAT32, 1, 0), TUTTI_ERR_UNSUPPORTED,
           "tutti_send: cannot estimate the time of messages");
    tutti_request* request = nullptr;
    expect(tutti_irecv(comm, &x, 1, TUTTI_FLOAT32, 1, 0, nullptr, nullptr, &request),
           TUTTI_ERR_UNSUPPORTED, "tutti_irecv: cannot estimate");
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    opts.algorithm = "magic";
    expect(tutti_iallreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, &opts, &request),
           TUTTI_ERR_UNSUPPORTED, "no algorithm 'magic'");
    expect(tutti_estimate_end(comm, nullptr), TUTTI_ERR_INVALID, "microseconds is NULL");
    REQUIRE(tutti_estimate_end(comm, &us) == TUTTI_OK);
    REQUIRE(us == 0);
}

TEST_CASE("estimates: the calls of another thread are made as usual") {
    Pair comm([](tutti_comm* other) {
        float x = 2;
        return tutti_allreduce(other, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM);
    });
    float x = 1, y = 1;
    double us = 0;
    tutti_status made = TUTTI_IN_PROGRESS, ended = TUTTI_OK;
    REQUIRE(tutti_estimate_begin(comm) == TUTTI_OK);
    // The two threads take turns.
    std::thread([&] {
        made = tutti_allreduce(comm, &x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM);
        double ignored = 0;
        ended = tutti_estimate_end(comm, &ignored);
    }).join();
    REQUIRE(made == TUTTI_OK);
    REQUIRE(x == 3.0F);
    REQUIRE(ended == TUTTI_ERR_INVALID);
    REQUIRE(tutti_allreduce(comm, &y, &y, 1, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
    REQUIRE(y == 1.0F);
    REQUIRE(tutti_estimate_end(comm, &us) == TUTTI_OK);
    REQUIRE(us > 0);
}

tutti_memory_stats memory_of(tutti_comm* comm) {
    tutti_memory_stats stats = TUTTI_MEMORY_STATS_INIT;
    REQUIRE(tutti_comm_memory(comm, &stats) == TUTTI_OK);
    return stats;
}

TEST_CASE("memory in use: follows allocations and registrations of this communicator") {
    const Pair comm(nothing);
    const tutti_memory_stats before = memory_of(comm);
    REQUIRE(before.allocated_bytes == 0);
    REQUIRE(before.registered_bytes == 0);
    REQUIRE(before.recorder_bytes > 0);
    void *small = nullptr, *large = nullptr;
    REQUIRE(tutti_mem_alloc(comm, 100, &small) == TUTTI_OK);
    REQUIRE(tutti_mem_alloc(comm, (5 << 20) + 1, &large) == TUTTI_OK);
    REQUIRE(memory_of(comm).allocated_bytes == 4096 + (6 << 20));
    std::vector<float> own(1000);
    REQUIRE(tutti_mem_register(comm, own.data(), 4000, -1) == TUTTI_OK);
    REQUIRE(memory_of(comm).registered_bytes == 4000);
    REQUIRE(memory_of(comm).allocated_bytes == 4096 + (6 << 20));
    REQUIRE(tutti_mem_deregister(comm, own.data()) == TUTTI_OK);
    REQUIRE(tutti_mem_free(nullptr, large) == TUTTI_OK);
    REQUIRE(memory_of(comm).allocated_bytes == 4096);
    REQUIRE(memory_of(comm).registered_bytes == 0);
    REQUIRE(tutti_mem_free(comm, small) == TUTTI_OK);
    REQUIRE(memory_of(comm).allocated_bytes == 0);
}

TEST_CASE("memory in use: plans have work memory as long as they live") {
    constexpr std::size_t count = 1 << 18;
    // Sums of several inputs in fp32, which the output has no room for.
    const auto make_plan = [](tutti_comm* comm, tutti_plan** plan) {
        return tutti_plan_allreduce_multi(comm, 2, count, TUTTI_BFLOAT16, TUTTI_SUM, nullptr, plan);
    };
    const Pair comm([&](tutti_comm* other) {
        tutti_plan* plan = nullptr;
        const tutti_status status = make_plan(other, &plan);
        const tutti_status waited = tutti_barrier(other);
        tutti_plan_destroy(plan);
        return status ? status : waited;
    });
    tutti_plan* plan = nullptr;
    REQUIRE(make_plan(comm, &plan) == TUTTI_OK);
    REQUIRE(tutti_barrier(comm) == TUTTI_OK);
    REQUIRE(memory_of(comm).work_bytes >= count * sizeof(float));
    tutti_plan_destroy(plan);
    REQUIRE(memory_of(comm).work_bytes == 0);
}

TEST_CASE("memory in use: a structure that is too small is refused and not written") {
    const Pair comm(nothing);
    tutti_memory_stats stats = TUTTI_MEMORY_STATS_INIT;
    stats.struct_size = sizeof stats - 1;
    stats.recorder_bytes = 7;
    expect(tutti_comm_memory(comm, &stats), TUTTI_ERR_INVALID, "struct_size is");
    REQUIRE(stats.recorder_bytes == 7);
}

}  // namespace
}  // namespace inspect_test
