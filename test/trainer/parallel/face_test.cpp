// The C++ faces of the parallel helpers and of the sharded layer.
#include <atomic>
#include <cmath>
#include <numeric>

#include "support/catch.h"
#include "trainer/expect.h"
#include "tutti/trainer_parallel.hpp"
#include "tutti/trainer_sharded.hpp"

namespace {

using Floats = std::vector<float>;

Floats elements_of(const tutti::Value& value) {
    const std::span<float> elements = value.elements<float>();
    return {elements.begin(), elements.end()};
}

Floats up_to(int count) {
    Floats list(static_cast<std::size_t>(count));
    std::iota(list.begin(), list.end(), 0.0F);
    return list;
}

}  // namespace

TEST_CASE("faces: a nested batch is split over devices, and what is no array goes to all") {
    int tag = 7;
    const tutti::Value batch = tutti::Value::map(
        {{"data", tutti::Value::array(up_to(10), {5, 2})},
         {"more",
          tutti::Value::tuple({tutti::Value::array(up_to(5), {5}), tutti::Value::plain(&tag)})}});
    const std::vector<tutti::Value> parts = tutti::split_and_load(batch, 2);
    REQUIRE(parts.size() == 2);
    REQUIRE(parts[0]["data"].shape() == std::vector<int64_t>{3, 2});
    REQUIRE(elements_of(parts[1]["data"]) == Floats{6, 7, 8, 9});
    REQUIRE(elements_of(parts[1]["more"][0]) == Floats{3, 4});
    REQUIRE(parts[1]["more"][1].as_plain() == &tag);
    REQUIRE(!parts[0]["absent"]);
    REQUIRE(tutti::split_and_load(tutti::Value::array(up_to(1), {1}), 4).size() == 1);
    expect::error([&] { (void)parts[0]["data"].elements<double>(); }, "not an array of float64");
    expect::error([] { tutti::Value::array(Floats{1, 2}, {3}); }, "2 elements");
}

TEST_CASE("faces: replicas are lambdas with flags, inputs and outputs; an error names its device") {
    tutti::Pool pool(3);
    for (const bool sync : {false, true}) {
        const std::vector<tutti::Value> outputs =
            pool.apply(tutti::split_and_load(tutti::Value::array(up_to(6), {6}), 3),
                       [&](tutti::Replica& r) {
                           if (r.training() || !r.recording() || r.count() != 3)
                               return tutti::Value();
                           return tutti::Value::array(elements_of(r.input()), {2});
                       },
                       {.training = false, .sync = sync});
        REQUIRE(outputs.size() == 3);
        REQUIRE(elements_of(outputs[2]) == Floats{4, 5});
    }
    try {
        pool.apply(3, [](tutti::Replica& r) -> tutti::Value {
            if (r.device() == 1) throw std::runtime_error("no memory for it");
            return {};
        });
        FAIL("it should have thrown");
    } catch (const tutti::Error& error) {
        REQUIRE(error.device() == 1);
        expect::words(error.what(), "no memory for it");
    }
    REQUIRE(pool.apply(2, [](tutti::Replica&) { return tutti::Value(); }).size() == 2);
}

TEST_CASE("faces: an exchange adds up, takes an operator, and calls back") {
    tutti::Pool pool(2);
    tutti::ParallelState sum(pool, tutti::dtype_of<int64_t>);
    tutti::ParallelState largest(pool, [](auto inputs, auto outputs, std::size_t) {
        float most = 0;
        for (const void* in : inputs) most = std::max(most, *static_cast<const float*>(in));
        for (void* out : outputs) *static_cast<float*>(out) = most;
    });
    std::atomic<int> called{0};
    pool.apply(2,
               [&](tutti::Replica& r) -> tutti::Value {
                   std::vector<int64_t> own{r.device() + 1}, all{0};
                   const uint64_t round = sum.push(r.device(), own, all);
                   sum.then(round,
                            [&](tutti_status status) { called += status == TUTTI_OK ? 1 : 100; });
                   sum.pull(round);
                   const Floats mine{static_cast<float>(r.device())};
                   Floats most{0};
                   largest.exchange(r.device(), mine, most);
                   if (all[0] != 3 || most[0] != 1 || sum.size() != 2)
                       throw std::runtime_error("sums");
                   return {};
               },
               {.sync = true});
    REQUIRE(called == 2);
    // Without sync the first would wait for ever: its status survives the way through C.
    try {
        pool.apply(2, [&](tutti::Replica& r) -> tutti::Value {
            std::vector<int64_t> value{1};
            sum.exchange(r.device(), value, value);
            return {};
        });
        FAIL("it should have thrown");
    } catch (const tutti::Error& error) {
        REQUIRE(error.status() == TUTTI_ERR_INVALID);
        expect::words(error.what(), "one after another");
    }
}

TEST_CASE("faces: a model on all devices with a synchronised layer, its outputs and losses") {
    Floats mean{0}, variance{1};
    tutti::SyncBatchNorm* layer = nullptr;
    tutti::DataParallel model(
        {.devices = 2, .sync = true, .model = [&](tutti::Replica& r) {
             const Floats x = elements_of(r.input());
             Floats y(x.size());
             layer->forward(r, x.data(), {x.size(), 1}, nullptr, nullptr, y.data());
             return tutti::Value::array(y, {static_cast<int64_t>(y.size())});
         }});
    tutti::SyncBatchNorm norm(model.pool(), {.channels = 1,
                                             .epsilon = 0,
                                             .momentum = 1,
                                             .running_mean = {mean.data(), mean.data()},
                                             .running_var = {variance.data(), variance.data()}});
    layer = &norm;
    const tutti::Value outputs = model.forward(tutti::Value::array(Floats{1, 2, 3, 6}, {4}));
    REQUIRE(outputs.size() == 2);
    REQUIRE(mean[0] == 3);
    REQUIRE(elements_of(outputs[1])[0] == 0);
    const tutti::Value losses = model.loss(
        [](tutti::Replica& r) {
            const tutti::Value pair = r.input();
            Floats sum{0};
            for (float y : elements_of(pair[0])) sum[0] += y;
            for (float t : elements_of(pair[1])) sum[0] += t;
            return tutti::Value::array(sum, {1});
        },
        outputs, tutti::Value::array(Floats{10, 10, 20, 20}, {4}));
    REQUIRE(losses.size() == 2);
    REQUIRE(std::fabs(elements_of(losses[0])[0] + elements_of(losses[1])[0] - 60) < 1e-4);
    expect::error(
        [&] {
            tutti::SyncBatchNorm bad(
                model.pool(),
                {.channels = 1, .running_mean = {mean.data()}, .running_var = {mean.data()}});
        },
        "of 1 devices, but the pool has 2");
}

TEST_CASE("faces: the sharded layer on one rank is a softmax cross-entropy") {
    tutti_fc_math math = *tutti_fc_math_host();
    math.gemm = [](void*, int ta, int tb, size_t m, size_t n, size_t k, const float* a,
                   const float* b, float beta, float* c) -> tutti_status {
        for (size_t i = 0; i < m; ++i)
            for (size_t j = 0; j < n; ++j) {
                float sum = beta == 0 ? 0 : beta * c[i * n + j];
                for (size_t l = 0; l < k; ++l)
                    sum += a[ta ? l * m + i : i * k + l] * b[tb ? j * k + l : l * n + j];
                c[i * n + j] = sum;
            }
        return TUTTI_OK;
    };
    tutti::ShardedLinear fc({.classes = 4, .features = 2, .math = &math});
    REQUIRE(fc.own().count == 4);
    const Floats x{1, 2}, weight(8, 0);
    const std::vector<int64_t> labels{2};
    REQUIRE(std::fabs(fc.forward(x, labels, weight) - std::log(4.0)) < 1e-6);
    Floats dx(2), dweight(8);
    fc.backward(1, weight, dx, dweight);
    REQUIRE(std::fabs(dweight[5] - 2 * (0.25F - 1)) < 1e-6);
    REQUIRE(std::fabs(dweight[0] - 0.25F) < 1e-6);
    expect::error([&] { fc.forward(x, labels, Floats(6)); }, "weight has 6 elements, not 8");
    REQUIRE(tutti::shard_range(10, 4, 3).count == 1);
    REQUIRE(tutti::shard_index(labels, 4, 2, 1, -1) == std::vector<int64_t>{0});
}
