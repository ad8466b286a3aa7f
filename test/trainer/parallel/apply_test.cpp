// parallel_apply: threads that stay, flags, order, failures, outputs.
#include <array>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "support/catch.h"
#include "support/sanitized.h"
#include "trainer/parallel/parallel_fixture.h"

using namespace tutti::test;

namespace {

std::size_t threads_of_process() {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                      std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("parallel_apply: 1,000 calls run on the same threads, and make no other") {
    const Pool pool = make_pool(4);
    std::mutex mutex;
    std::set<std::pair<int, std::thread::id>> seen;
    const auto note = [&](tutti_replica* replica) {
        const std::lock_guard lock(mutex);
        seen.emplace(tutti_replica_device(replica), std::this_thread::get_id());
        return TUTTI_OK;
    };
    ok(apply(pool.get(), 4, flags(1), note));
    const std::size_t threads = threads_of_process();
    for (int call = 0; call < 1000; ++call) ok(apply(pool.get(), 1 + call % 4, flags(1), note));
    REQUIRE(threads_of_process() == threads);
    REQUIRE(seen.size() == 4);
    REQUIRE_FALSE(seen.contains({0, std::this_thread::get_id()}));
}

TEST_CASE("parallel_apply: calls of changing size run each replica once") {
    // Threads that have nothing to do in one call may wake during the next.
    const Pool pool = make_pool(4);
    std::array<std::atomic<int>, 4> runs{};
    std::array<int, 4> expected{};
    for (int call = 0; call < (sanitized ? 500 : 3000); ++call) {
        const int replicas = call % 3 == 0 ? 1 : 4;
        for (int d = 0; d < replicas; ++d) ++expected[static_cast<std::size_t>(d)];
        ok(apply(pool.get(), replicas, flags(call % 3 != 1), [&](tutti_replica* replica) {
            ++runs[static_cast<std::size_t>(tutti_replica_device(replica))];
            return TUTTI_OK;
        }));
    }
    for (std::size_t d = 0; d < 4; ++d) REQUIRE(runs[d] == expected[d]);
}

TEST_CASE("parallel_apply: training and recording flags reach every worker") {
    const Pool pool = make_pool(3);
    for (const int sync : {0, 1})
        for (const int training : {0, 1})
            for (const int recording : {0, 1}) {
                std::atomic<int> right{0};
                ok(apply(pool.get(), 3, flags(sync, training, recording), [&](tutti_replica* r) {
                    right += tutti_replica_training(r) == training &&
                             tutti_replica_recording(r) == recording && tutti_replica_count(r) == 3;
                    return TUTTI_OK;
                }));
                REQUIRE(right == 3);
            }
}

TEST_CASE("parallel_apply: without sync, replicas run one after another on the caller") {
    const Pool pool = make_pool(3);
    std::vector<int> order;  // no lock: one thread
    ok(apply(pool.get(), 3, flags(0), [&](tutti_replica* replica) {
        order.push_back(tutti_replica_device(replica));
        return TUTTI_OK;
    }));
    REQUIRE(order == std::vector<int>{0, 1, 2});
    const auto caller = std::this_thread::get_id();
    ok(apply(pool.get(), 3, flags(0), [&](tutti_replica*) {
        return std::this_thread::get_id() == caller ? TUTTI_OK : TUTTI_ERR_INVALID;
    }));
}

TEST_CASE("parallel_apply: with sync, replicas run all at once") {
    const Pool pool = make_pool(3);
    std::atomic<int> here{0};
    ok(apply(pool.get(), 3, flags(1), [&](tutti_replica*) {
        ++here;
        while (here != 3) std::this_thread::yield();  // ends only if all three run
        return TUTTI_OK;
    }));
}

TEST_CASE("parallel_apply: an exchange without sync is an error, not a hang") {
    const Pool pool = make_pool(2);
    const Parallel state = make_parallel(pool.get());
    const auto work = [&](tutti_replica* replica) {
        int64_t x = 1;
        return tutti_parallel_exchange(state.get(), tutti_replica_device(replica), &x, &x,
                                       sizeof x);
    };
    REQUIRE(apply(pool.get(), 2, flags(0), work) == TUTTI_ERR_INVALID);
    INFO(tutti_trainer_last_error());
    REQUIRE(error_says("device 0: exchange: 2 replicas run one after another"));
    REQUIRE(error_says("sync = 1"));
    REQUIRE(tutti_trainer_last_error_device() == 0);
    ok(apply(pool.get(), 1, flags(0), work));  // alone, it waits for nobody
    ok(apply(pool.get(), 2, flags(1), work));
}

TEST_CASE("parallel_apply: a worker that throws releases the others, and its cause comes first") {
    const Pool pool = make_pool(4);
    const Parallel state = make_parallel(pool.get());
    const int rounds = sanitized ? 20 : 100;
    for (int i = 0; i < rounds; ++i) {
        const int culprit = i % 4;
        std::atomic<int> released{0};
        const auto work = [&](tutti_replica* replica) -> tutti_status {
            const int device = tutti_replica_device(replica);
            int64_t x = 1;
            ok(tutti_parallel_exchange(state.get(), device, &x, &x, sizeof x));
            if (device == culprit) throw std::runtime_error("no such file: weights");
            const tutti_status status =
                tutti_parallel_exchange(state.get(), device, &x, &x, sizeof x);
            released += status != TUTTI_OK && error_says("stopped, because device");
            return status;
        };
        REQUIRE(apply(pool.get(), 4, flags(1), work) == TUTTI_ERR_SYSTEM);
        REQUIRE(std::string(tutti_trainer_last_error())
                    .starts_with("device " + std::to_string(culprit) +
                                 ": no such file: weights. What to do: "));
        REQUIRE(tutti_trainer_last_error_device() == culprit);
        REQUIRE(released == 3);
        // The pool and the exchange are as good as new.
        std::atomic<int64_t> total{0};
        ok(apply(pool.get(), 4, flags(1), [&](tutti_replica* replica) {
            const int device = tutti_replica_device(replica);
            int64_t x = device;
            const tutti_status status =
                tutti_parallel_exchange(state.get(), device, &x, &x, sizeof x);
            total += x;
            return status;
        }));
        REQUIRE(total == 4 * (0 + 1 + 2 + 3));
    }
}

TEST_CASE("parallel_apply: a C replica fails with its status and its text") {
    const Pool pool = make_pool(2);
    for (const int sync : {0, 1}) {
        const auto work = [](tutti_replica* replica) {
            if (tutti_replica_device(replica) == 0) return TUTTI_OK;
            tutti_replica_set_error(replica, "the matrix is singular");
            return TUTTI_ERR_UNSUPPORTED;
        };
        std::vector<Value> outputs;
        REQUIRE(apply(pool.get(), 2, flags(sync), work, &outputs) == TUTTI_ERR_UNSUPPORTED);
        REQUIRE(std::string(tutti_trainer_last_error())
                    .starts_with("device 1: the matrix is singular. What to do: "));
        REQUIRE((outputs[0] == nullptr && outputs[1] == nullptr));
    }
}

TEST_CASE("parallel_apply: a replica that exchanges less often than another is an error") {
    const Pool pool = make_pool(3);
    const Parallel state = make_parallel(pool.get());
    const auto work = [&](tutti_replica* replica) {
        const int device = tutti_replica_device(replica);
        int64_t x = 1;
        for (int i = 0; i < (device == 1 ? 2 : 5); ++i)
            if (const auto status = tutti_parallel_exchange(state.get(), device, &x, &x, sizeof x))
                return status;
        return TUTTI_OK;
    };
    REQUIRE(apply(pool.get(), 3, flags(1), work) == TUTTI_ERR_INVALID);
    INFO(tutti_trainer_last_error());
    REQUIRE(error_says("device 1 returned while device"));
}

TEST_CASE("parallel_apply: outputs are nested and each replica's own") {
    const Pool pool = make_pool(3);
    for (const int sync : {0, 1}) {
        std::vector<Value> outputs;
        ok(apply(
            pool.get(), 3, flags(sync),
            [&](tutti_replica* replica) {
                const auto device = static_cast<float>(tutti_replica_device(replica));
                const Value logits = array({device, device + 10}, {2});
                const Value boxes = array({device * 100}, {1, 1});
                const Value heads = sequence({boxes.get(), logits.get()}, TUTTI_VALUE_TUPLE);
                tutti_replica_set_output(
                    replica, map({"heads", "aux"}, {heads.get(), logits.get()}).release());
                return TUTTI_OK;
            },
            &outputs));
        for (std::size_t d = 0; d < 3; ++d) {
            const auto device = static_cast<float>(d);
            const tutti_value* heads = tutti_value_item(outputs[d].get(), 0);
            REQUIRE(tutti_value_key(outputs[d].get(), 0) == std::string("heads"));
            REQUIRE(tutti_value_kind_of(heads) == TUTTI_VALUE_TUPLE);
            REQUIRE(floats_of(tutti_value_item(heads, 0)) == std::vector{device * 100});
            REQUIRE(floats_of(tutti_value_item(outputs[d].get(), 1)) ==
                    std::vector{device, device + 10});
        }
    }
}

TEST_CASE("parallel_apply: a call from inside a replica is refused, not a deadlock") {
    const Pool pool = make_pool(2);
    const auto inner = [](tutti_replica*) { return TUTTI_OK; };
    REQUIRE(apply(pool.get(), 2, flags(1), [&](tutti_replica*) {
                return apply(pool.get(), 2, flags(1), inner);
            }) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("in use by another call"));
    REQUIRE(apply(pool.get(), 3, flags(1), inner) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("replicas is 3, but the pool has 2 devices"));
    tutti_apply_opts opts{};
    REQUIRE(apply(pool.get(), 2, opts, inner) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("initialise the struct with TUTTI_APPLY_OPTS_INIT"));
}
