// Row 8: buckets, their order and overlap, unused parameters, frameworks with their own autograd.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <random>

#include "support/catch.h"
#include "trainer/expect.h"
#include "trainer/net.h"
#include "trainer/ranks.h"

namespace {

using ranks::require;

// Parameters p0, p1, … of the given lengths and nothing else, plain SGD with a rate of 1.
tutti::TrainerSpec autograd(const std::vector<int64_t>& lengths, int devices, tutti_comm* comm) {
    tutti::TrainerSpec spec;
    spec.devices = devices;
    spec.comm = comm;
    spec.options.external_autograd = 1;
    spec.options.first_bucket_bytes = 64;
    spec.options.bucket_bytes = 256;
    spec.options.max_in_flight = 2;
    spec.forward = [=](tutti::Model& m, double) {
        for (std::size_t i = 0; i < lengths.size(); ++i)
            m.parameter<float>("p" + std::to_string(i), {lengths[i]});
        return tutti::Losses{};
    };
    spec.update = [=](tutti::Model& m, double) {
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            const tutti_buffer p = m.find("p" + std::to_string(i)), g = m.gradient(p);
            const int64_t count = lengths[i];
            m.operation("update" + std::to_string(i), {p, g}, {p}, [=](const tutti::Step& s) {
                for (int64_t k = 0; k < count; ++k) s.data<float>(p)[k] -= s.data<float>(g)[k];
            });
        }
    };
    return spec;
}

}  // namespace

TEST_CASE("gradients: buckets are filled from the last parameter on, the first one smaller") {
    tutti::Trainer trainer(autograd({8, 8, 40, 40, 8, 8, 8}, 2, nullptr));
    REQUIRE(trainer.counters().buckets == 3);  // 8 8 | 8 40 | 40 8 8, of 16 and 64 elements
    const auto address = [&](const char* name) {
        return static_cast<const char*>(trainer.find(0, name).data);
    };
    REQUIRE(address("p5_grad") - address("p6_grad") == 64);
    REQUIRE(address("p0_grad") - address("p1_grad") == 64);
}

TEST_CASE("gradients: a bucket's reduction starts while backward goes on") {
    for (auto execution : {TUTTI_EXECUTION_SERIAL, TUTTI_EXECUTION_DAG})
        expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
            net::Shape shape;
            shape.widths = {3, 8, 8, 8, 1};
            tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
            options.first_bucket_bytes = options.bucket_bytes = 8 * 8 * 4 + 8 * 4;  // a layer
            options.execution = execution;
            options.threads = 1;
            tutti::TrainerSpec spec = net::spec<float>(shape, 1, comm, options);
            tutti::Trainer* self = nullptr;
            int64_t before = 0, during = -1;
            const auto forward = spec.forward;
            spec.forward = [&, forward](tutti::Model& m, double scale) {
                // First in forward, so last in backward.
                const tutti_buffer p = m.parameter<float>("early", {1});
                const tutti_buffer y = m.activation<float>("early_loss", {1});
                m.operation(
                    "early", {p}, {y},
                    [&](const tutti::Step&) { before = self->counters().collectives; },
                    [&](const tutti::Step&) { during = self->counters().collectives - before; });
                tutti::Losses losses = forward(m, scale);
                losses.push_back(y);
                return losses;
            };
            tutti::Trainer trainer(std::move(spec));
            self = &trainer;
            trainer.init_sync();
            trainer.step();
            require(during >= 3, "only " + std::to_string(during) + " were under way");
        }));
}

TEST_CASE("gradients: no more reductions are under way than wanted") {
    // Rank 1 does not begin before rank 0 has gone as far as it can, so nothing of rank 0's ends.
    constexpr int limit = 2;
    for (auto execution : {TUTTI_EXECUTION_SERIAL, TUTTI_EXECUTION_DAG}) {
        const bool is_dag = execution == TUTTI_EXECUTION_DAG;
        std::promise<void> all_computed;
        std::shared_future<void> computed = all_computed.get_future().share();
        std::atomic<int> reached = 0;
        expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
            tutti_trainer_options options = TUTTI_TRAINER_OPTIONS_INIT;
            options.first_bucket_bytes = options.bucket_bytes = 64;
            options.max_in_flight = limit;
            options.execution = execution;
            options.threads = 1;
            tutti::TrainerSpec spec{.comm = comm, .options = options};
            tutti::Trainer* self = nullptr;
            int64_t before = 0, issued = -1;
            spec.forward = [&](tutti::Model& m, double) {
                tutti::Losses losses;
                for (int i = 0; i < 6; ++i) {
                    const tutti_buffer p = m.parameter<float>("p" + std::to_string(i), {16});
                    losses.push_back(m.activation<float>("y" + std::to_string(i), {1}));
                    m.operation(
                        "layer" + std::to_string(i), {p}, {losses.back()},
                        [&, rank, i](const tutti::Step&) {
                            if (i == 0) before = self->counters().collectives;
                            if (rank == 0 || i > 0) return;
                            // A serial step stops on the way: it has had time to go too far.
                            computed.wait_for(std::chrono::milliseconds(is_dag ? 60'000 : 300));
                            require(reached <= (is_dag ? 6 : limit + 1),
                                    "backward went on past a full queue");
                        },
                        [&, rank, i](const tutti::Step&) {
                            if (rank == 1) return;
                            ++reached;
                            if (i > 0) return;
                            issued = self->counters().collectives - before;
                            all_computed.set_value();
                        });
                }
                return losses;
            };
            spec.update = [](tutti::Model& m, double) { m.iteration(); };
            tutti::Trainer trainer(std::move(spec));
            self = &trainer;
            trainer.init_sync();
            trainer.step();
            if (rank == 0 && is_dag)
                require(issued == limit, std::to_string(issued) + " were under way");
        }));
    }
}

TEST_CASE("gradients: a parameter that no operation uses has a gradient of zero") {
    expect::no_problem(ranks::run(2, [](tutti_comm* comm, int) {
        const net::Shape shape;
        tutti::TrainerSpec spec = net::spec<float>(shape, 2, comm);
        const auto forward = spec.forward;
        spec.forward = [=](tutti::Model& m, double scale) {
            m.parameter<float>("unused", {5});
            return forward(m, scale);
        };
        tutti::Trainer trainer(std::move(spec));
        net::initialise<float>(trainer, shape);
        trainer.init_sync();
        trainer.write<float>(0, "unused_grad", std::vector<float>(5, 9));
        for (int i = 0; i < 2; ++i) trainer.step();
        for (int d = 0; d < 2; ++d)
            require(trainer.read<float>(d, "unused_grad") == std::vector<float>(5, 0), "not 0");
    }));
}

TEST_CASE(
    "gradients: what an update leaves in one that no operation uses is gone by the next step") {
    for (const int micro_batches : {1, 3})
        expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int) {
            tutti::TrainerSpec spec;
            spec.comm = comm;
            spec.options.micro_batches = micro_batches;
            spec.forward = [](tutti::Model& m, double) {
                m.parameter<float>("unused", {1});
                const tutti_buffer used = m.parameter<float>("used", {1});
                const tutti_buffer loss = m.activation<float>("loss", {1});
                const auto nothing = [](const tutti::Step&) {};
                m.operation("nothing", {used}, {loss}, nothing, nothing);
                return tutti::Losses{loss};
            };
            spec.update = [](tutti::Model& m, double) {
                const tutti_buffer p = m.find("unused"), g = m.gradient(p);
                m.operation("decay", {p, g}, {p, g}, [=](const tutti::Step& s) {
                    *s.data<float>(g) += 0.5f * *s.data<float>(p);
                    *s.data<float>(p) -= *s.data<float>(g);
                });
            };
            tutti::Trainer trainer(std::move(spec));
            trainer.write<float>(0, "unused", {64});
            trainer.init_sync();
            for (int i = 0; i < 3; ++i) trainer.step();
            require(trainer.read<float>(0, "unused")[0] == 8, "a gradient was kept");
        }));
}

TEST_CASE("autograd: gradients told in any order from any thread are summed, unused ones zero") {
    const std::vector<int64_t> lengths = {8, 30, 5, 64, 7, 12};
    constexpr int devices = 2, unused = 4;
    expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
        tutti::Trainer trainer(autograd(lengths, devices, comm));
        trainer.init_sync();
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int step = 0; step < 20; ++step) {
            trainer.begin();
            std::atomic<int> failures = 0;
            std::vector<std::thread> threads;
            for (int d = 0; d < devices; ++d)
                threads.emplace_back([&, d, seed = random()] {
                    std::vector<int> order;
                    for (int i = 0; i < static_cast<int>(lengths.size()); ++i)
                        if (i != unused) order.push_back(i);
                    std::shuffle(order.begin(), order.end(), std::mt19937(seed));
                    for (int i : order) {
                        const std::string name = "p" + std::to_string(i);
                        auto* g = static_cast<float*>(trainer.find(d, name + "_grad").data);
                        for (int64_t k = 0; k < lengths[i]; ++k)
                            g[k] = static_cast<float>(100 * i + 10 * rank + d);
                        try {
                            trainer.grad_ready(d, name);
                        } catch (const tutti::Error&) {
                            ++failures;
                        }
                    }
                });
            for (std::thread& thread : threads) thread.join();
            require(failures == 0, "grad_ready failed");
            trainer.finish();
            for (int d = 0; d < devices; ++d)
                for (int i = 0; i < static_cast<int>(lengths.size()); ++i) {
                    const auto each = static_cast<float>(i == unused ? 0 : 400 * i + 22);
                    require(
                        trainer.read<float>(d, "p" + std::to_string(i)) ==
                            std::vector<float>(lengths[i], -each * static_cast<float>(step + 1)),
                        "p" + std::to_string(i) + " is wrong");
                }
        }
    }));
}

TEST_CASE("autograd: telling twice, too early or of what is no parameter is an error") {
    tutti::Trainer trainer(autograd({4}, 1, nullptr));
    trainer.init_sync();
    expect::error([&] { trainer.step(); }, "call tutti_trainer_begin, ");
    expect::error([&] { trainer.grad_ready(0, "p0"); },
                  "'p0' was reported ready outside of a step");
    trainer.begin();
    expect::error([&] { trainer.begin(); }, "the previous step is not finished");
    expect::error([&] { trainer.grad_ready(0, "p1"); }, "no buffer named 'p1'");
    trainer.grad_ready(0, "p0");
    expect::error([&] { trainer.grad_ready(0, "p0"); }, "'p0' was already reported ready");
    trainer.finish();
}

// The other rank takes part, so that bytes go in and out of the bucket meanwhile.
TEST_CASE("autograd: a trainer that is destroyed in a step ends what it has under way") {
    for (int round = 0; round < 5; ++round) {
        std::atomic<bool> told{false};
        expect::no_problem(ranks::run(2, [&](tutti_comm* comm, int rank) {
            tutti::Trainer trainer(autograd({2'000'000}, 1, comm));
            trainer.init_sync();
            for (int i = 0; i < 30'000 && rank == 0 && !told; ++i)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            trainer.begin();
            trainer.grad_ready(0, "p0");
            if (rank == 0) return;  // as where a backward throws
            told = true;
            (void)expect::error_of([&] { trainer.finish(); });
        }));
    }
}

TEST_CASE("autograd: finish says what went wrong in grad_ready, and no other step begins") {
    expect::no_problem(ranks::run(2, [](tutti_comm* comm, int rank) {
        tutti::Trainer trainer(autograd({64, 64, 64, 64}, 1, comm));
        trainer.init_sync();
        if (rank == 1) return;  // gone before the step
        trainer.begin();
        // The first bucket's failure comes out where the third waits for it.
        bool told = false;
        for (const char* name : {"p0", "p1", "p2", "p3"})
            told |= expect::error_of([&] { trainer.grad_ready(0, name); }) != "no error";
        require(told, "grad_ready was OK");
        const std::string finished = expect::error_of([&] { trainer.finish(); });
        require(finished != "no error" && finished.find("no step has begun") == finished.npos,
                finished);
        const std::string begun = expect::error_of([&] { trainer.begin(); });
        require(begun.find("the trainer ended after") != begun.npos, begun);
    }));
}

TEST_CASE("autograd: without an update builder there is no gradient to tell of") {
    tutti::TrainerSpec spec = autograd({4}, 1, nullptr);
    spec.update = nullptr;
    tutti::Trainer trainer(std::move(spec));
    trainer.init_sync();
    trainer.begin();
    expect::error([&] { trainer.grad_ready(0, "p0"); }, "p0' has no gradient");
}
