// ParallelState: sums among devices, ordered by dependency, without blocking whoever gives.
#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "support/catch.h"
#include "support/sanitized.h"
#include "trainer/card.h"
#include "trainer/parallel/parallel_fixture.h"

using namespace tutti::test;

namespace {

constexpr auto patience = std::chrono::seconds(60);

tutti_parallel_spec integers(int64_t timeout_ms = 60'000) {
    tutti_parallel_spec spec = TUTTI_PARALLEL_SPEC_INIT;
    spec.dtype = TUTTI_INT64;
    spec.timeout_ms = timeout_ms;
    return spec;
}

}  // namespace

TEST_CASE("exchange: 10,000 rounds are exact on every device, with one state") {
    const Pool pool = make_pool(3);
    const Parallel state = make_parallel(pool.get());
    constexpr int64_t rounds = 10'000;
    std::atomic<int64_t> wrong{0};
    ok(apply(pool.get(), 3, flags(1), [&](tutti_replica* replica) -> tutti_status {
        const int device = tutti_replica_device(replica);
        if (tutti_parallel_size(state.get()) != 3) return TUTTI_ERR_INVALID;
        for (int64_t round = 0; round < rounds; ++round) {
            int64_t x[2] = {round * (device + 1), int64_t{1} << device}, sum[2];
            if (const auto status = tutti_parallel_exchange(state.get(), device, x, sum, sizeof x))
                return status;
            wrong += sum[0] != round * 6 || sum[1] != 7;
        }
        return TUTTI_OK;
    }));
    REQUIRE(wrong == 0);
    REQUIRE(tutti_parallel_size(state.get()) == 0);
}

TEST_CASE("exchange: floats are added in the order of devices, in whichever order they come") {
    tutti_parallel_spec spec = TUTTI_PARALLEL_SPEC_INIT;
    const float values[3] = {1e8F, -1e8F, 1.0F};  // another order gives 0
    for (const std::vector<int>& order : {std::vector{0, 1, 2}, {2, 1, 0}, {1, 2, 0}}) {
        const Parallel state = make_free(3, spec);
        float sums[3] = {};
        uint64_t round = 7;
        for (const int device : order)
            ok(tutti_parallel_push(state.get(), device, &values[device], &sums[device],
                                   sizeof(float), &round));
        ok(tutti_parallel_pull(state.get(), round));
        for (const float sum : sums) REQUIRE(sum == 1.0F);
    }
}

TEST_CASE("exchange: giving does not block, and what depends on the result comes after it") {
    // Device 1 does not give before device 0's push has returned and more work was done: a push
    // that waits for the others would end in the time-out.
    const Parallel state = make_free(2, integers());
    std::promise<void> went_on;
    std::atomic<bool> late_gave{false};
    int64_t x = 20, sum = 0, other = 22, other_sum = 0;
    std::thread late([&] {
        went_on.get_future().wait_for(patience);
        late_gave = true;
        ok(tutti_parallel_exchange(state.get(), 1, &other, &other_sum, sizeof other));
    });
    struct After {
        int64_t* sum;
        std::atomic<bool>* gave;
        std::promise<int64_t> seen;
    } after{&sum, &late_gave, {}};
    uint64_t round = 0;
    ok(tutti_parallel_push(state.get(), 0, &x, &sum, sizeof x, &round));
    ok(tutti_parallel_then(
        state.get(), round,
        [](void* user, tutti_status status) {
            auto& a = *static_cast<After*>(user);
            a.seen.set_value(status == TUTTI_OK && *a.gave ? *a.sum : -1);
        },
        &after));
    REQUIRE_FALSE(late_gave);
    went_on.set_value();
    ok(tutti_parallel_pull(state.get(), round));
    REQUIRE(sum == 42);
    REQUIRE(late_gave);
    auto seen = after.seen.get_future();
    REQUIRE(seen.wait_for(patience) == std::future_status::ready);
    REQUIRE(seen.get() == 42);
    late.join();
    REQUIRE(other_sum == 42);
}

TEST_CASE("exchange: a device may give several rounds ahead of the others") {
    const Parallel state = make_free(2, integers());
    int64_t in[2][5], out[2][5];
    uint64_t rounds[2][5];
    for (int device : {1, 0})
        for (int i = 0; i < 5; ++i) {
            in[device][i] = 100 * device + i;
            ok(tutti_parallel_push(state.get(), device, &in[device][i], &out[device][i],
                                   sizeof(int64_t), &rounds[device][i]));
        }
    for (int device : {0, 1})
        for (int i = 4; i >= 0; --i) {
            ok(tutti_parallel_pull(state.get(), rounds[device][i]));
            REQUIRE(out[device][i] == 100 + 2 * i);
        }
}

TEST_CASE("exchange: the operator is the program's own") {
    struct Calls {
        std::atomic<int> count{0};
    } calls;
    tutti_parallel_spec spec = integers();
    spec.user = &calls;
    // Each device gets the value of the next one: an operator need not even reduce.
    spec.combine = [](void* user, const void* const* inputs, void* const* outputs, int devices,
                      size_t) -> tutti_status {
        ++static_cast<Calls*>(user)->count;
        std::vector<int> given;
        for (int d = 0; d < devices; ++d) given.push_back(*static_cast<const int*>(inputs[d]));
        for (int d = 0; d < devices; ++d)
            *static_cast<int*>(outputs[d]) = given[static_cast<std::size_t>((d + 1) % devices)];
        return given[0] < 0 ? TUTTI_ERR_UNSUPPORTED : TUTTI_OK;
    };
    const Parallel state = make_free(3, spec);
    int x[3] = {5, 6, 7};
    for (int d = 0; d < 3; ++d)
        ok(tutti_parallel_push(state.get(), d, &x[d], &x[d], sizeof(int), nullptr));
    REQUIRE((x[0] == 6 && x[1] == 7 && x[2] == 5));
    REQUIRE(calls.count == 1);
    x[0] = -1;
    for (int d = 0; d < 2; ++d)
        ok(tutti_parallel_push(state.get(), d, &x[d], &x[d], sizeof(int), nullptr));
    REQUIRE(tutti_parallel_push(state.get(), 2, &x[2], &x[2], sizeof(int), nullptr) ==
            TUTTI_ERR_UNSUPPORTED);
    REQUIRE(error_says("its operator failed: unsupported"));
}

TEST_CASE("exchange: an operator that throws fails the round for every device") {
    tutti_parallel_spec spec = integers(50);
    spec.combine = [](void*, const void* const*, void* const*, int, size_t) -> tutti_status {
        throw std::runtime_error("no way");
    };
    const Parallel state = make_free(2, spec);
    int64_t x[2] = {1, 2};
    uint64_t round = 0;
    ok(tutti_parallel_push(state.get(), 0, &x[0], &x[0], 8, &round));
    std::thread last([&] { tutti_parallel_push(state.get(), 1, &x[1], &x[1], 8, nullptr); });
    const tutti_status status = tutti_parallel_pull(state.get(), round);
    const bool says = error_says("no way");
    last.join();
    REQUIRE(status == TUTTI_ERR_SYSTEM);
    REQUIRE(says);
}

TEST_CASE("exchange: devices add up in memory that nothing else reaches") {
    const card::Cards cards(3);
    tutti_parallel_spec spec = TUTTI_PARALLEL_SPEC_INIT;
    spec.devices = cards.devices.data();
    const Pool pool = make_pool(3);
    tutti_parallel* made = nullptr;
    ok(tutti_parallel_create(pool.get(), &spec, &made));
    const Parallel state(made);
    constexpr std::size_t count = 5, bytes = count * sizeof(float);
    const auto card_of = [&](std::size_t d) { return const_cast<card::Card*>(&cards[d]); };
    void* memory[3];
    for (std::size_t d = 0; d < 3; ++d) memory[d] = card_of(d)->alloc(bytes);
    ok(apply(pool.get(), 3, flags(1), [&](tutti_replica* replica) -> tutti_status {
        const int device = tutti_replica_device(replica);
        const auto d = static_cast<std::size_t>(device);
        for (int round = 0; round < 20; ++round) {
            float x[count];
            for (std::size_t i = 0; i < count; ++i)
                x[i] = static_cast<float>((round + 1) * (device + 1)) + static_cast<float>(i);
            ok(card::copy(card_of(d), memory[d], x, bytes));
            ok(tutti_parallel_exchange(state.get(), device, memory[d], memory[d], bytes));
            ok(card::copy(card_of(d), x, memory[d], bytes));
            for (std::size_t i = 0; i < count; ++i)
                if (x[i] != static_cast<float>((round + 1) * 6) + 3 * static_cast<float>(i))
                    return TUTTI_ERR_SYSTEM;
        }
        return TUTTI_OK;
    }));
    for (std::size_t d = 0; d < 3; ++d) {
        REQUIRE(cards[d].peer_copies >= 20);
        card_of(d)->release(memory[d], bytes);
    }
    spec.dtype = TUTTI_INT64;
    REQUIRE(tutti_parallel_create(pool.get(), &spec, &made) == TUTTI_ERR_UNSUPPORTED);
    REQUIRE(error_says("spec.devices does not support int64"));
}

TEST_CASE("exchange: sizes that differ, and devices that never give, are errors that name them") {
    const Parallel state = make_free(2, integers());
    int64_t x[2] = {1, 2};
    uint64_t round = 0;
    ok(tutti_parallel_push(state.get(), 0, x, x, 8, &round));
    REQUIRE(tutti_parallel_push(state.get(), 1, x, x, 16, nullptr) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("device 1 gave 16 bytes, device 0 8"));
    REQUIRE(tutti_parallel_pull(state.get(), round) == TUTTI_ERR_INVALID);
    REQUIRE(tutti_parallel_push(state.get(), 2, x, x, 8, nullptr) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("device 2 is out of range: 2 replicas are running"));
    const Parallel hurried = make_free(3, integers(20));
    ok(tutti_parallel_push(hurried.get(), 1, x, x, 8, &round));
    REQUIRE(tutti_parallel_pull(hurried.get(), round) == TUTTI_ERR_TIMEOUT);
    REQUIRE(error_says("timed out after 20 ms waiting for device 0, 2"));
    const Pool pool = make_pool(2);
    const Parallel idle = make_parallel(pool.get());
    REQUIRE(tutti_parallel_push(idle.get(), 0, x, x, 8, nullptr) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("call it inside tutti_parallel_apply"));
}

TEST_CASE("exchange: one that a replica makes serves the call under way, and later ones") {
    const Pool pool = make_pool(3);
    Parallel state;
    std::once_flag once;
    const auto sum_up = [&](tutti_replica* replica) {
        std::call_once(once, [&] { state = make_parallel(pool.get()); });
        int64_t sum = tutti_replica_device(replica);
        ok(tutti_parallel_exchange(state.get(), static_cast<int>(sum), &sum, &sum, sizeof sum));
        return sum == 3 ? TUTTI_OK : TUTTI_ERR_SYSTEM;
    };
    for (int call = 0; call < 3; ++call) ok(apply(pool.get(), 3, flags(1), sum_up));
    // An exchange fails once the other devices have returned; their own error, if any, is reported.
    const auto alone = [&](tutti_status others) {
        Parallel late;
        return apply(pool.get(), 3, flags(1), [&](tutti_replica* replica) -> tutti_status {
            if (tutti_replica_device(replica) != 0) return others;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            late = make_parallel(pool.get());
            int64_t x = 0;
            return tutti_parallel_exchange(late.get(), 0, &x, &x, sizeof x);
        });
    };
    REQUIRE(alone(TUTTI_OK) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("returned while device 0 waits for it"));
    REQUIRE(alone(TUTTI_ERR_UNSUPPORTED) == TUTTI_ERR_UNSUPPORTED);
    ok(apply(pool.get(), 3, flags(1), sum_up));
}

TEST_CASE("exchange: nobody is released while the operator still writes to the outputs") {
    // Its work takes longer than the time-out of a pull; all have given, so nothing is late.
    std::promise<void> began;
    tutti_parallel_spec spec = integers(20);
    spec.user = &began;
    spec.combine = [](void* user, const void* const*, void* const* outputs, int devices,
                      size_t) -> tutti_status {
        static_cast<std::promise<void>*>(user)->set_value();
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (int d = 0; d < devices; ++d) *static_cast<int64_t*>(outputs[d]) = 42;
        return TUTTI_OK;
    };
    const Parallel state = make_free(2, spec);
    int64_t x[2] = {1, 2};
    uint64_t round = 0;
    ok(tutti_parallel_push(state.get(), 0, &x[0], &x[0], 8, &round));
    std::thread last([&] { ok(tutti_parallel_push(state.get(), 1, &x[1], &x[1], 8, nullptr)); });
    const bool inside = began.get_future().wait_for(patience) == std::future_status::ready;
    const tutti_status status = tutti_parallel_pull(state.get(), round);
    const int64_t seen = x[0];
    last.join();
    REQUIRE(inside);
    REQUIRE(status == TUTTI_OK);
    REQUIRE(seen == 42);
}
