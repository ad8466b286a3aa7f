// The sharded layer against the unsharded one, written out here in double.
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <random>

#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/ranks.h"
#include "tutti/trainer_sharded.h"

using namespace tutti::test;
using ranks::on_ranks;

namespace {

constexpr std::size_t features = 5;
constexpr int64_t ignore = -100;
using Floats = std::vector<float>;

void ok(tutti_status status) {
    if (status != TUTTI_OK) throw std::runtime_error(tutti_trainer_last_error());
}

tutti_status gemm(void*, int ta, int tb, size_t m, size_t n, size_t k, const float* a,
                  const float* b, float beta, float* c) {
    for (size_t i = 0; i < m; ++i)
        for (size_t j = 0; j < n; ++j) {
            double sum = beta == 0 ? 0 : double{beta} * c[i * n + j];
            for (size_t l = 0; l < k; ++l)
                sum += double{a[ta ? l * m + i : i * k + l]} * b[tb ? j * k + l : l * n + j];
            c[i * n + j] = static_cast<float>(sum);
        }
    return TUTTI_OK;
}

tutti_fc_math math_with_gemm() {
    tutti_fc_math math = *tutti_fc_math_host();
    math.gemm = gemm;
    return math;
}

struct Problem {
    int64_t classes;
    std::vector<std::size_t> batches;  // of each rank
    Floats x, weight, bias;
    std::vector<int64_t> labels;

    Problem(int64_t class_count, std::vector<std::size_t> batch_sizes)
        : classes(class_count), batches(std::move(batch_sizes)) {
        std::mt19937 random(3);
        std::normal_distribution<float> normal(0, 2);
        std::size_t samples = 0;
        for (const std::size_t batch : batches) samples += batch;
        const auto count = static_cast<std::size_t>(classes);
        x.resize(samples * features);
        weight.resize(count * features);
        bias.resize(count);
        for (Floats* values : {&x, &weight, &bias})
            for (float& value : *values) value = normal(random);
        for (std::size_t i = 0; i < samples; ++i)
            labels.push_back(i % 4 == 3 ? ignore : static_cast<int64_t>(random() % count));
    }
    std::size_t first_sample(int rank) const {
        std::size_t first = 0;
        for (int r = 0; r < rank; ++r) first += batches[static_cast<std::size_t>(r)];
        return first;
    }
};

struct Answer {
    double loss = 0;
    std::vector<double> dx, dweight, dbias;
};

Answer unsharded(const Problem& p, double scale) {
    const auto classes = static_cast<std::size_t>(p.classes);
    Answer out{0, std::vector<double>(p.x.size()), std::vector<double>(p.weight.size()),
               std::vector<double>(classes)};
    double counted = 0;
    for (const int64_t label : p.labels) counted += label != ignore;
    for (std::size_t i = 0; i < p.labels.size(); ++i) {
        if (p.labels[i] == ignore) continue;
        const auto label = static_cast<std::size_t>(p.labels[i]);
        std::vector<double> logits(classes);
        double sum = 0;
        for (std::size_t c = 0; c < classes; ++c) {
            logits[c] = p.bias[c];
            for (std::size_t f = 0; f < features; ++f)
                logits[c] += double{p.x[i * features + f]} * p.weight[c * features + f];
            sum += std::exp(logits[c]);
        }
        out.loss += (std::log(sum) - logits[label]) / counted;
        for (std::size_t c = 0; c < classes; ++c) {
            const double g = scale / counted * (std::exp(logits[c]) / sum - (c == label ? 1 : 0));
            out.dbias[c] += g;
            for (std::size_t f = 0; f < features; ++f) {
                out.dx[i * features + f] += g * p.weight[c * features + f];
                out.dweight[c * features + f] += g * p.x[i * features + f];
            }
        }
    }
    return out;
}

void expect_close(const char* what, const Floats& found, const std::vector<double>& all,
                  std::size_t from) {
    for (std::size_t i = 0; i < found.size(); ++i)
        if (std::fabs(found[i] - all[from + i]) > 1e-5 * std::max(1.0, std::fabs(all[from + i])))
            throw std::runtime_error(std::string(what) + " differs at " + std::to_string(i));
}

using Layer = std::unique_ptr<tutti_sharded_fc, decltype(&tutti_sharded_fc_destroy)>;

Layer make_layer(tutti_comm* comm, int64_t classes, const tutti_fc_math& math) {
    tutti_sharded_fc_spec spec = TUTTI_SHARDED_FC_SPEC_INIT;
    spec.comm = comm;
    spec.classes = classes;
    spec.features = features;
    spec.ignore = ignore;
    spec.math = &math;
    tutti_sharded_fc* layer = nullptr;
    ok(tutti_sharded_fc_create(&spec, &layer));
    return {layer, tutti_sharded_fc_destroy};
}

/// Two steps on one rank: the second finds what the first left.
void check_rank(const Problem& p, tutti_comm* comm, int rank, int ranks) {
    const double scale = 8;
    const Answer expected = unsharded(p, scale);
    int64_t first = 0, count = 0;
    ok(tutti_shard_range(p.classes, ranks, rank, &first, &count));
    const auto begin = static_cast<std::size_t>(first), own = static_cast<std::size_t>(count);
    const Layer layer = make_layer(comm, p.classes, math_with_gemm());
    const float* weight = p.weight.data() + begin * features;
    const std::size_t batch = p.batches[static_cast<std::size_t>(rank)];
    const std::size_t sample = p.first_sample(rank);
    for (int step = 0; step < 2; ++step) {
        Floats dx(batch * features, 99), dweight(own * features, 99), dbias(own, 99);
        double loss = -1;
        ok(tutti_sharded_fc_forward(layer.get(), p.x.data() + sample * features,
                                    p.labels.data() + sample, batch, weight, p.bias.data() + begin,
                                    &loss));
        if (std::fabs(loss - expected.loss) > 1e-5) throw std::runtime_error("loss differs");
        ok(tutti_sharded_fc_backward(layer.get(), scale, weight, dx.data(), dweight.data(),
                                     dbias.data()));
        expect_close("dx", dx, expected.dx, sample * features);
        expect_close("dweight", dweight, expected.dweight, begin * features);
        expect_close("dbias", dbias, expected.dbias, begin);
    }
}

/// The host's function, with the card's memory open.
template <auto member>
struct OnCard;
template <typename... Args, tutti_status (*tutti_fc_math::*member)(void*, Args...)>
struct OnCard<member> {
    static tutti_status call(void* user, Args... args) {
        const card::Card::Open open(user);
        return (tutti_fc_math_host()->*member)(nullptr, args...);
    }
};

float* put(card::Card& card, const float* values, std::size_t count) {
    auto* at = static_cast<float*>(card.alloc((count + 1) * sizeof(float)));
    if (values) ok(card::copy(&card, at, values, count * sizeof(float)));
    return at;
}

Floats get(card::Card& card, const float* at, std::size_t count) {
    Floats values(count);
    ok(card::copy(&card, values.data(), at, count * sizeof(float)));
    return values;
}

tutti_fc_math math_on(card::Card& card) {
    tutti_fc_math math = *tutti_fc_math_host();
    math.user = &card;
    math.alloc = [](void* user, size_t bytes) {
        return static_cast<card::Card*>(user)->alloc(bytes);
    };
    math.free = [](void*, void*) {};  // with the card
    math.copy = OnCard<&tutti_fc_math::copy>::call;
    math.gemm = [](void* user, int ta, int tb, size_t m, size_t n, size_t k, const float* a,
                   const float* b, float beta, float* c) {
        const card::Card::Open open(user);
        return gemm(nullptr, ta, tb, m, n, k, a, b, beta, c);
    };
    math.add_bias = OnCard<&tutti_fc_math::add_bias>::call;
    math.row_max = OnCard<&tutti_fc_math::row_max>::call;
    math.pick = OnCard<&tutti_fc_math::pick>::call;
    math.exponentials = OnCard<&tutti_fc_math::exponentials>::call;
    math.gradient = OnCard<&tutti_fc_math::gradient>::call;
    math.column_sums = OnCard<&tutti_fc_math::column_sums>::call;
    math.to_host = [](void* user, float* host, const float* from, size_t count) {
        return card::copy(user, host, from, count * sizeof(float));
    };
    math.from_host = [](void* user, float* to, const float* host, size_t count) {
        return card::copy(user, to, host, count * sizeof(float));
    };
    return math;
}

void check_on_card(const Problem& p, tutti_comm* comm, int rank, int ranks) {
    const Answer expected = unsharded(p, 1);
    int64_t first = 0, count = 0;
    ok(tutti_shard_range(p.classes, ranks, rank, &first, &count));
    const auto begin = static_cast<std::size_t>(first), own = static_cast<std::size_t>(count);
    const std::size_t batch = p.batches[static_cast<std::size_t>(rank)];
    const std::size_t sample = p.first_sample(rank);
    card::Card card;
    const Layer layer = make_layer(comm, p.classes, math_on(card));
    const float* weight = put(card, p.weight.data() + begin * features, own * features);
    const float* bias = put(card, p.bias.data() + begin, own);
    const float* x = put(card, p.x.data() + sample * features, batch * features);
    float* dx = put(card, nullptr, batch * features);
    float* dweight = put(card, nullptr, own * features);
    float* dbias = put(card, nullptr, own);
    double loss = -1;
    ok(tutti_sharded_fc_forward(layer.get(), x, p.labels.data() + sample, batch, weight, bias,
                                &loss));
    if (std::fabs(loss - expected.loss) > 1e-5) throw std::runtime_error("loss differs");
    ok(tutti_sharded_fc_backward(layer.get(), 1, weight, dx, dweight, dbias));
    expect_close("dx", get(card, dx, batch * features), expected.dx, sample * features);
    expect_close("dweight", get(card, dweight, own * features), expected.dweight, begin * features);
    expect_close("dbias", get(card, dbias, own), expected.dbias, begin);
}

void check(const Problem& p) {
    const int ranks = static_cast<int>(p.batches.size());
    if (ranks == 1) return check_rank(p, nullptr, 0, 1);
    on_ranks(ranks,
             [&](tutti::Communicator& comm) { check_rank(p, comm.get(), comm.rank(), ranks); });
}

}  // namespace

TEST_CASE("shard_index: labels become places in the shard, others the ignore value") {
    const std::vector<int64_t> labels{0, 19, 5, -1, 13, 6, 12};
    std::vector<int64_t> out(labels.size());
    const auto shard = [&](int shards, int index) {
        ok(tutti_shard_index(labels.data(), labels.size(), 20, shards, index, -1, out.data()));
        return out;
    };
    REQUIRE(shard(3, 0) == std::vector<int64_t>{0, -1, 5, -1, -1, 6, -1});
    REQUIRE(shard(3, 1) == std::vector<int64_t>{-1, -1, -1, -1, 6, -1, 5});
    REQUIRE(shard(3, 2) == std::vector<int64_t>{-1, 5, -1, -1, -1, -1, -1});
    REQUIRE(shard(1, 0) == labels);
    REQUIRE(tutti_shard_index(labels.data(), 2, 19, 3, 0, -1, out.data()) == TUTTI_ERR_INVALID);
    REQUIRE(std::string(tutti_trainer_last_error()) ==
            "tutti_shard_index: label 19 at 1 is out of range: there are 19 classes. What to do: "
            "pass labels from 0 to 18, or -1 to ignore a sample");
    REQUIRE(tutti_shard_index(labels.data(), 2, 20, 3, 3, -1, out.data()) == TUTTI_ERR_INVALID);
}

TEST_CASE("shard_range: shards have (N + s - 1) / s classes, and every class is in one") {
    for (int64_t classes = 1; classes <= 40; ++classes)
        for (int shards = 1; shards <= 9; ++shards) {
            int64_t next = 0;
            for (int shard = 0; shard < shards; ++shard) {
                int64_t first = 0, count = 0;
                ok(tutti_shard_range(classes, shards, shard, &first, &count));
                REQUIRE(first == next);
                REQUIRE(count <= (classes + shards - 1) / shards);
                if (next + count < classes) REQUIRE(count == (classes + shards - 1) / shards);
                next += count;
            }
            REQUIRE(next == classes);
        }
}

TEST_CASE("sharded_fc: loss and gradients equal the unsharded layer") {
    check(Problem(10, {6}));
    check(Problem(10, {3, 3}));
    check(Problem(11, {4, 4, 4}));
    check(Problem(9, {2, 3, 2, 3}));
}

TEST_CASE("sharded_fc: the same with uneven or empty batches, and shards without a class") {
    check(Problem(7, {5, 0, 2}));
    check(Problem(5, {1, 2, 3, 2}));  // two each: the last shard has none
    check(Problem(1, {2, 1}));
}

TEST_CASE("sharded_fc: the same in memory that nothing but the program's functions reaches") {
    const Problem one(10, {6}), uneven(7, {5, 0, 2});
    check_on_card(one, nullptr, 0, 1);
    on_ranks(3,
             [&](tutti::Communicator& comm) { check_on_card(uneven, comm.get(), comm.rank(), 3); });
    card::Card card;
    tutti_fc_math half = math_on(card);
    half.from_host = nullptr;
    REQUIRE_THROWS(make_layer(nullptr, 3, half));
    REQUIRE(std::string(tutti_trainer_last_error()).find("give both or neither") !=
            std::string::npos);
}

TEST_CASE("sharded_fc: samples that are all ignored give no loss and no gradient") {
    Problem p(6, {2, 2});
    p.labels.assign(4, ignore);
    on_ranks(2, [&](tutti::Communicator& comm) {
        const Layer layer = make_layer(comm.get(), 6, math_with_gemm());
        const float* weight = p.weight.data() + comm.rank() * 3 * static_cast<int>(features);
        Floats dx(2 * features, 9), dweight(3 * features, 9);
        double loss = 9;
        ok(tutti_sharded_fc_forward(layer.get(), p.x.data(), p.labels.data(), 2, weight, nullptr,
                                    &loss));
        ok(tutti_sharded_fc_backward(layer.get(), 1, weight, dx.data(), dweight.data(), nullptr));
        if (loss != 0 || dx != Floats(dx.size()) || dweight != Floats(dweight.size()))
            throw std::runtime_error("not zero");
    });
}

TEST_CASE("sharded_fc: a rank has one n-th of the logits' memory") {
    // All that the layer allocates goes through its table. Many classes: features hardly matter.
    constexpr int64_t classes = 40'000;
    const auto bytes_on = [](int ranks) {
        std::vector<std::size_t> most(static_cast<std::size_t>(ranks));
        const Problem p(classes,
                        std::vector<std::size_t>(static_cast<std::size_t>(ranks), 12 / ranks));
        on_ranks(ranks, [&](tutti::Communicator& comm) {
            tutti_fc_math math = math_with_gemm();
            math.user = &most[static_cast<std::size_t>(comm.rank())];
            math.alloc = [](void* user, size_t bytes) -> void* {
                *static_cast<std::size_t*>(user) += bytes;
                return std::malloc(bytes);
            };
            const Layer layer = make_layer(comm.get(), classes, math);
            const std::size_t rows = static_cast<std::size_t>(classes / ranks);
            const Floats weight(rows * features, 0.1F);
            Floats dx(p.x.size()), dweight(weight.size());
            double loss = 0;
            ok(tutti_sharded_fc_forward(layer.get(), p.x.data(), p.labels.data(), p.batches[0],
                                        weight.data(), nullptr, &loss));
            ok(tutti_sharded_fc_backward(layer.get(), 1, weight.data(), dx.data(), dweight.data(),
                                         nullptr));
            if (std::fabs(loss - std::log(double{classes})) > 1e-3)
                throw std::runtime_error("equal logits give log(classes)");
        });
        return static_cast<double>(most[0]);
    };
    const double one = bytes_on(1), four = bytes_on(4);
    REQUIRE(one >= 12.0 * classes * sizeof(float));
    REQUIRE(four <= one / 4 * 1.01);
}

TEST_CASE("sharded_fc: a label that is no class is refused on every rank, naming it and its rank") {
    Problem p(10, {2, 2});
    p.labels = {1, 2, 3, 10};
    std::mutex mutex;
    std::vector<std::string> errors;
    on_ranks(2, [&](tutti::Communicator& comm) {
        const Layer layer = make_layer(comm.get(), 10, math_with_gemm());
        const auto rank = static_cast<std::size_t>(comm.rank());
        double loss = 0;
        Floats dx(p.x.size()), dweight(p.weight.size());
        const auto forward = [&](const std::vector<int64_t>& labels) {
            return tutti_sharded_fc_forward(layer.get(), p.x.data(), labels.data() + 2 * rank, 2,
                                            p.weight.data(), nullptr, &loss);
        };
        if (forward(p.labels) != TUTTI_ERR_INVALID) throw std::runtime_error("not refused");
        {
            const std::lock_guard lock(mutex);
            errors.push_back(tutti_trainer_last_error());
        }
        if (tutti_sharded_fc_backward(layer.get(), 1, p.weight.data(), dx.data(), dweight.data(),
                                      nullptr) != TUTTI_ERR_INVALID)
            throw std::runtime_error("backward without forward");
        ok(forward({1, 2, 3, 9}));  // layer and communicator work on
    });
    REQUIRE(errors.size() == 2);
    for (const std::string& error : errors)
        REQUIRE(error ==
                "sharded_fc: label 10 of sample 1 on rank 1 is out of range: there are 10 classes. "
                "What to do: pass labels from 0 to 9, or -100 to ignore a sample");
    tutti_sharded_fc_spec spec = TUTTI_SHARDED_FC_SPEC_INIT;
    tutti_sharded_fc* layer = nullptr;
    spec.math = tutti_fc_math_host();
    REQUIRE(tutti_sharded_fc_create(&spec, &layer) == TUTTI_ERR_INVALID);
    REQUIRE(std::string(tutti_trainer_last_error()).find("give it a gemm") != std::string::npos);
}
