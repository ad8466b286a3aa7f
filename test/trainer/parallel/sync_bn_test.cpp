// Synchronised batch-norm against batch-norm over the joined batch, written out here.
#include <chrono>
#include <cmath>
#include <mutex>
#include <random>

#include "support/catch.h"
#include "trainer/card.h"
#include "trainer/parallel/parallel_fixture.h"
#include "trainer/ranks.h"

using namespace tutti::test;
using ranks::on_ranks;

namespace {

constexpr std::size_t channels = 3, inner = 4;
constexpr double epsilon = 1e-5, momentum = 0.1;

using Floats = std::vector<float>;
using Rows = std::vector<std::vector<std::size_t>>;

/// Rows of each device, rank by rank; x and dy for each; what a layer has learnt.
struct Problem {
    Rows rows;
    std::vector<std::vector<Floats>> x, dy;
    Floats gamma{0.5F, 2, -1}, beta{0.1F, -0.2F, 3};

    explicit Problem(Rows rows_of) : rows(std::move(rows_of)) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal(3, 2);
        for (const auto& rank : rows) {
            x.emplace_back();
            dy.emplace_back();
            for (const std::size_t count : rank)
                for (auto* values : {&x.back(), &dy.back()}) {
                    values->emplace_back(count * channels * inner);
                    for (float& value : values->back()) value = normal(random);
                }
        }
    }
};

struct Results {
    std::vector<std::vector<Floats>> y, dx;
    std::vector<double> dgamma = std::vector<double>(channels), dbeta = dgamma;
    std::vector<double> mean = std::vector<double>(channels), variance = mean;
};

template <typename Use>
void for_channel(const Problem& p, std::size_t c, Use&& use) {
    for (std::size_t r = 0; r < p.rows.size(); ++r)
        for (std::size_t d = 0; d < p.rows[r].size(); ++d)
            for (std::size_t row = 0; row < p.rows[r][d]; ++row)
                for (std::size_t i = 0; i < inner; ++i) use(r, d, (row * channels + c) * inner + i);
}

/// The textbook, over all samples at once, in double. Running statistics after one step from 0, 1.
Results joined(const Problem& p) {
    Results out;
    out.y = out.dx = p.x;
    for (std::size_t c = 0; c < channels; ++c) {
        double n = 0, sum = 0, squares = 0;
        for_channel(p, c, [&](auto r, auto d, auto i) { n += 1, sum += p.x[r][d][i]; });
        const double mean = sum / n;
        for_channel(p, c,
                    [&](auto r, auto d, auto i) { squares += std::pow(p.x[r][d][i] - mean, 2); });
        const double inverse = 1 / std::sqrt(squares / n + epsilon);
        const auto normal = [&](auto r, auto d, auto i) { return (p.x[r][d][i] - mean) * inverse; };
        for_channel(p, c, [&](auto r, auto d, auto i) {
            out.y[r][d][i] = static_cast<float>(normal(r, d, i) * p.gamma[c] + p.beta[c]);
            out.dgamma[c] += p.dy[r][d][i] * normal(r, d, i);
            out.dbeta[c] += p.dy[r][d][i];
        });
        for_channel(p, c, [&](auto r, auto d, auto i) {
            out.dx[r][d][i] = static_cast<float>(
                p.gamma[c] * inverse *
                (p.dy[r][d][i] - out.dbeta[c] / n - normal(r, d, i) * out.dgamma[c] / n));
        });
        out.mean[c] = momentum * mean;
        out.variance[c] = 1 - momentum + momentum * squares / (n - 1);
    }
    return out;
}

SyncBn make_layer(tutti_pool* pool, tutti_comm* comm, const std::vector<void*>& mean,
                  const std::vector<void*>& variance) {
    tutti_sync_bn_spec spec = TUTTI_SYNC_BN_SPEC_INIT;
    spec.channels = channels;
    spec.epsilon = epsilon;
    spec.momentum = momentum;
    spec.running_mean = mean.empty() ? nullptr : mean.data();
    spec.running_var = variance.empty() ? nullptr : variance.data();
    spec.comm = comm;
    tutti_sync_bn* layer = nullptr;
    ok(tutti_sync_bn_create(pool, &spec, &layer));
    return SyncBn(layer);
}

/// One rank's devices: forward and backward. Results of this rank into out.
void step(tutti_pool* pool, tutti_sync_bn* layer, const Problem& p, std::size_t rank, Results& out,
          std::mutex& mutex) {
    const std::size_t devices = p.rows[rank].size();
    ok(apply(pool, static_cast<int>(devices), flags(1),
             [&](tutti_replica* replica) -> tutti_status {
                 const int device = tutti_replica_device(replica);
                 const auto d = static_cast<std::size_t>(device);
                 const std::size_t rows = p.rows[rank][d];
                 Floats dgamma(channels), dbeta(channels);
                 ok(tutti_sync_bn_forward(layer, device, 1, p.x[rank][d].data(), rows, inner,
                                          p.gamma.data(), p.beta.data(), out.y[rank][d].data()));
                 ok(tutti_sync_bn_backward(layer, device, p.x[rank][d].data(), p.dy[rank][d].data(),
                                           rows, inner, p.gamma.data(), out.dx[rank][d].data(),
                                           dgamma.data(), dbeta.data()));
                 const std::lock_guard lock(mutex);
                 for (std::size_t c = 0; c < channels; ++c) {
                     out.dgamma[c] += dgamma[c];
                     out.dbeta[c] += dbeta[c];
                 }
                 return TUTTI_OK;
             }));
}

template <typename A, typename B>
void expect_close(const A& found, const B& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        const double scale = std::max(1.0, std::fabs(static_cast<double>(expected[i])));
        REQUIRE(std::fabs(found[i] - expected[i]) <= 1e-5 * scale);
    }
}

void expect_joined(const Problem& p) {
    const Results expected = joined(p);
    Results found;
    found.y = found.dx = p.x;
    std::mutex mutex;
    std::vector<std::vector<Floats>> means(p.rows.size()), variances(p.rows.size());
    const auto on_rank = [&](tutti_comm* comm, std::size_t rank) {
        const std::size_t devices = p.rows[rank].size();
        means[rank].assign(devices, Floats(channels, 0));
        variances[rank].assign(devices, Floats(channels, 1));
        std::vector<void*> mean, variance;
        for (std::size_t d = 0; d < devices; ++d) {
            mean.push_back(means[rank][d].data());
            variance.push_back(variances[rank][d].data());
        }
        const Pool pool = make_pool(static_cast<int>(devices));
        const SyncBn layer = make_layer(pool.get(), comm, mean, variance);
        step(pool.get(), layer.get(), p, rank, found, mutex);
    };
    if (p.rows.size() == 1)
        on_rank(nullptr, 0);
    else
        on_ranks(static_cast<int>(p.rows.size()), [&](tutti::Communicator& comm) {
            on_rank(comm.get(), static_cast<std::size_t>(comm.rank()));
        });
    for (std::size_t r = 0; r < p.rows.size(); ++r)
        for (std::size_t d = 0; d < p.rows[r].size(); ++d) {
            expect_close(found.y[r][d], expected.y[r][d]);
            expect_close(found.dx[r][d], expected.dx[r][d]);
            expect_close(means[r][d], expected.mean);
            expect_close(variances[r][d], expected.variance);
            REQUIRE(means[r][d] == means[0][0]);  // to the last bit
            REQUIRE(variances[r][d] == variances[0][0]);
        }
    expect_close(found.dgamma, expected.dgamma);
    expect_close(found.dbeta, expected.dbeta);
}

/// The host's function, with the memory of the device's card open.
template <auto member>
struct OnCard;
template <typename... Args, tutti_status (*tutti_bn_math::*member)(void*, int, Args...)>
struct OnCard<member> {
    static tutti_status call(void* user, int device, Args... args) {
        const card::Card::Open open(&(*static_cast<card::Cards*>(user))[device]);
        return (tutti_bn_math_host()->*member)(nullptr, device, args...);
    }
};

tutti_bn_math math_on(card::Cards& cards) {
    return {sizeof(tutti_bn_math),
            &cards,
            OnCard<&tutti_bn_math::sums>::call,
            OnCard<&tutti_bn_math::normalize>::call,
            OnCard<&tutti_bn_math::gradient_sums>::call,
            OnCard<&tutti_bn_math::input_gradient>::call,
            OnCard<&tutti_bn_math::load>::call,
            OnCard<&tutti_bn_math::store>::call};
}

float* put(card::Card& card, const Floats& values) {
    const std::size_t bytes = values.size() * sizeof(float);
    void* at = card.alloc(bytes + 1);
    ok(card::copy(&card, at, values.data(), bytes));
    return static_cast<float*>(at);
}

Floats get(card::Card& card, const float* at, std::size_t count) {
    Floats values(count);
    ok(card::copy(&card, values.data(), at, count * sizeof(float)));
    return values;
}

}  // namespace

TEST_CASE("sync_bn: forward and backward equal batch-norm over the joined batch") {
    expect_joined(Problem(Rows{{6}}));
    expect_joined(Problem(Rows{{4, 4}}));
    expect_joined(Problem(Rows{{2, 2}, {2, 2}}));
}

TEST_CASE("sync_bn: the same when batches are uneven, and when a rank has no sample") {
    expect_joined(Problem(Rows{{5, 1, 3}}));
    expect_joined(Problem(Rows{{4, 1}, {7, 2}}));
    expect_joined(Problem(Rows{{3, 2}, {5}}));
    expect_joined(Problem(Rows{{0}, {4, 1}, {2}}));
}

TEST_CASE("sync_bn: running statistics that devices share are updated once") {
    const Problem p(Rows{{3, 2, 4}});
    Floats mean(channels, 0), variance(channels, 1);
    const Pool pool = make_pool(3);
    const SyncBn layer = make_layer(pool.get(), nullptr, std::vector<void*>(3, mean.data()),
                                    std::vector<void*>(3, variance.data()));
    Results found;
    found.y = found.dx = p.x;
    std::mutex mutex;
    step(pool.get(), layer.get(), p, 0, found, mutex);
    expect_close(mean, joined(p).mean);
    expect_close(variance, joined(p).variance);
}

TEST_CASE("sync_bn: the same in memory that nothing but the program's functions reaches") {
    const Problem p({{3, 5}});
    const Results expected = joined(p);
    card::Cards cards(2);
    const tutti_bn_math math = math_on(cards);
    std::vector<void*> mean, variance;
    for (int d : {0, 1}) {
        mean.push_back(put(cards[d], Floats(channels, 0)));
        variance.push_back(put(cards[d], Floats(channels, 1)));
    }
    tutti_sync_bn_spec spec = TUTTI_SYNC_BN_SPEC_INIT;
    spec.channels = channels;
    spec.epsilon = epsilon;
    spec.momentum = momentum;
    spec.running_mean = mean.data();
    spec.running_var = variance.data();
    spec.math = &math;
    const Pool pool = make_pool(2);
    tutti_sync_bn* made = nullptr;
    ok(tutti_sync_bn_create(pool.get(), &spec, &made));
    const SyncBn layer(made);
    std::vector<Floats> y(2), dx(2);
    ok(apply(pool.get(), 2, flags(1), [&](tutti_replica* replica) -> tutti_status {
        const int device = tutti_replica_device(replica);
        const auto d = static_cast<std::size_t>(device);
        card::Card& card = cards[d];
        const std::size_t rows = p.rows[0][d], count = rows * channels * inner;
        const float *x = put(card, p.x[0][d]), *dy = put(card, p.dy[0][d]);
        const float *gamma = put(card, p.gamma), *beta = put(card, p.beta);
        float *out = put(card, Floats(count)), *din = put(card, Floats(count));
        float *dgamma = put(card, Floats(channels)), *dbeta = put(card, Floats(channels));
        ok(tutti_sync_bn_forward(layer.get(), device, 1, x, rows, inner, gamma, beta, out));
        ok(tutti_sync_bn_backward(layer.get(), device, x, dy, rows, inner, gamma, din, dgamma,
                                  dbeta));
        y[d] = get(card, out, count);
        dx[d] = get(card, din, count);
        return TUTTI_OK;
    }));
    for (std::size_t d : {0, 1}) {
        for (std::size_t i = 0; i < y[d].size(); ++i) {
            REQUIRE(std::fabs(y[d][i] - expected.y[0][d][i]) < 1e-5);
            REQUIRE(std::fabs(dx[d][i] - expected.dx[0][d][i]) < 1e-5);
        }
        const Floats running = get(cards[d], static_cast<float*>(mean[d]), channels);
        for (std::size_t c = 0; c < channels; ++c)
            REQUIRE(std::fabs(running[c] - expected.mean[c]) < 1e-5);
    }
}

TEST_CASE("sync_bn: evaluation uses the running statistics and sends nothing") {
    const Problem p(Rows{{2, 2}, {2, 2}});
    on_ranks(2, [&](tutti::Communicator& comm) {
        Floats mean{1, 2, 3}, variance{4, 9, 16};
        const Pool pool = make_pool(2);
        const SyncBn layer = make_layer(pool.get(), comm.get(), {mean.data(), mean.data()},
                                        {variance.data(), variance.data()});
        // Rank 0 alone, without sync: no other rank is needed.
        if (comm.rank() == 0)
            ok(apply(pool.get(), 2, flags(0, 0), [&](tutti_replica* replica) -> tutti_status {
                const int device = tutti_replica_device(replica);
                const Floats& x = p.x[0][static_cast<std::size_t>(device)];
                Floats y(x.size());
                ok(tutti_sync_bn_forward(layer.get(), device, 0, x.data(), 2, inner, p.gamma.data(),
                                         nullptr, y.data()));
                for (std::size_t i = 0; i < x.size(); ++i) {
                    const std::size_t c = i / inner % channels;
                    const double expected =
                        (x[i] - mean[c]) / std::sqrt(variance[c] + epsilon) * p.gamma[c];
                    if (std::fabs(y[i] - expected) > 1e-5 * std::max(1.0, std::fabs(expected)))
                        return TUTTI_ERR_INVALID;
                }
                return TUTTI_OK;
            }));
        if (tutti_sync_bn_bytes(layer.get()) != 0 || mean != Floats{1, 2, 3})
            throw std::runtime_error("evaluation sent or changed something");
        Results found;
        found.y = found.dx = p.x;
        std::mutex mutex;
        step(pool.get(), layer.get(), p, static_cast<std::size_t>(comm.rank()), found, mutex);
        if (tutti_sync_bn_bytes(layer.get()) != (4 * channels + 1) * sizeof(double))
            throw std::runtime_error("a step sends its sums once");
    });
}

TEST_CASE("sync_bn: what makes no sense is refused, and names the device") {
    const Pool pool = make_pool(2);
    const SyncBn layer = make_layer(pool.get(), nullptr, {}, {});
    Floats x(channels * inner, 1), y(x.size());
    const auto forward = [&](int training) {
        return [&, training](tutti_replica* replica) {
            return tutti_sync_bn_forward(layer.get(), tutti_replica_device(replica), training,
                                         x.data(), 1, inner, nullptr, nullptr, y.data());
        };
    };
    REQUIRE(apply(pool.get(), 2, flags(0), forward(1)) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("replicas run one after another"));
    REQUIRE(apply(pool.get(), 1, flags(0), forward(0)) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("made without"));
    REQUIRE(tutti_sync_bn_backward(layer.get(), 1, x.data(), x.data(), 1, inner, nullptr, y.data(),
                                   nullptr, nullptr) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("comes before a training forward"));
    REQUIRE(tutti_sync_bn_forward(layer.get(), 2, 1, x.data(), 1, inner, nullptr, nullptr,
                                  y.data()) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("device 2 is out of range: the pool has 2 devices"));
    tutti_sync_bn_spec spec = TUTTI_SYNC_BN_SPEC_INIT;
    tutti_sync_bn* none = nullptr;
    REQUIRE(tutti_sync_bn_create(pool.get(), &spec, &none) == TUTTI_ERR_INVALID);
    REQUIRE(error_says("spec.channels is 0"));
}

namespace {

/// A pool with a layer over comm, for replicas that fail on one rank.
struct OnHosts {
    Pool pool;
    SyncBn layer;
    Floats mean = Floats(channels, 0), variance = Floats(channels, 1);
    Floats x = Floats(2 * channels * inner, 1), y = x;

    OnHosts(tutti::Communicator& comm, int devices) : pool(make_pool(devices)) {
        const auto n = static_cast<std::size_t>(devices);
        layer = make_layer(pool.get(), comm.get(), std::vector<void*>(n, mean.data()),
                           std::vector<void*>(n, variance.data()));
    }
    tutti_status forward(int device, int training) {
        return tutti_sync_bn_forward(layer.get(), device, training, x.data(), 2, inner, nullptr,
                                     nullptr, y.data());
    }
};

void require(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what + ": " + tutti_trainer_last_error());
}

}  // namespace

TEST_CASE("sync_bn: a replica that fails before its push is named to the other hosts at once") {
    for (int devices : {1, 2})
        on_ranks(3, [&](tutti::Communicator& comm) {
            OnHosts here(comm, devices);
            comm.barrier();  // making a layer is a call of all: it would be what fails
            const auto start = std::chrono::steady_clock::now();
            const auto train = [&](tutti_replica* replica) -> tutti_status {
                const int device = tutti_replica_device(replica);
                if (comm.rank() == 1 && device == devices - 1)
                    throw std::runtime_error("no picture in the file");
                std::vector<float> y(here.x.size());
                return tutti_sync_bn_forward(here.layer.get(), device, 1, here.x.data(), 2, inner,
                                             nullptr, nullptr, y.data());
            };
            const tutti_status status = apply(here.pool.get(), devices, flags(1), train);
            // The communicator's deadline is a minute.
            require(std::chrono::steady_clock::now() - start < std::chrono::seconds(30), "at once");
            if (comm.rank() == 1) {
                require(status == TUTTI_ERR_SYSTEM && error_says("no picture"), "its own cause");
            } else {
                require(status == TUTTI_ERR_ABORTED, "aborted");
                require(error_says("a replica of rank 1 failed"), "the rank at fault");
                require(tutti_trainer_last_error_rank() == 1, "as a number");
            }
            std::vector<int> ones{1};
            comm.allreduce(ones);  // the program's communicator works on
            require(ones[0] == 3, "sum");
            OnHosts again(comm, devices);
            require(apply(again.pool.get(), devices, flags(1),
                          [&](tutti_replica* replica) {
                              std::vector<float> y(again.x.size());
                              return tutti_sync_bn_forward(
                                  again.layer.get(), tutti_replica_device(replica), 1,
                                  again.x.data(), 2, inner, nullptr, nullptr, y.data());
                          }) == TUTTI_OK,
                    "made anew");
        });
}

TEST_CASE("sync_bn: a layer that trains in a call without the flag counts as training") {
    on_ranks(2, [&](tutti::Communicator& comm) {
        OnHosts here(comm, 2);
        comm.barrier();
        const auto start = std::chrono::steady_clock::now();
        const tutti_status status =
            apply(here.pool.get(), 2, flags(1, 0), [&](tutti_replica* replica) -> tutti_status {
                const int device = tutti_replica_device(replica);
                if (comm.rank() == 1 && device == 1) throw std::runtime_error("no picture");
                std::vector<float> y(here.x.size());
                return tutti_sync_bn_forward(here.layer.get(), device, 1, here.x.data(), 2, inner,
                                             nullptr, nullptr, y.data());
            });
        require(std::chrono::steady_clock::now() - start < std::chrono::seconds(30), "at once");
        if (comm.rank() == 0)
            require(status == TUTTI_ERR_ABORTED && tutti_trainer_last_error_rank() == 1, "told");
        else
            require(status == TUTTI_ERR_SYSTEM && error_says("no picture"), "its own cause");
    });
}

TEST_CASE("sync_bn: what fails in evaluation, or everywhere alike, ends nothing") {
    on_ranks(2, [&](tutti::Communicator& comm) {
        OnHosts here(comm, 1);
        if (comm.rank() == 0)
            require(apply(here.pool.get(), 1, flags(0, 0),
                          [&](tutti_replica* replica) {
                              here.forward(tutti_replica_device(replica), 0);
                              return TUTTI_ERR_INVALID;
                          }) == TUTTI_ERR_INVALID,
                    "evaluation fails");
        const auto train = [&](std::size_t rows) {
            return apply(here.pool.get(), 1, flags(1), [&, rows](tutti_replica*) {
                return tutti_sync_bn_forward(here.layer.get(), 0, 1, here.x.data(), rows, inner,
                                             nullptr, nullptr, here.y.data());
            });
        };
        require(train(0) == TUTTI_ERR_INVALID && error_says("no device of any host"), "no sample");
        require(train(2) == TUTTI_OK, "and on");
    });
}
